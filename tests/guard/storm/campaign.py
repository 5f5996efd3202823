"""Deliver orders again and again to shops that are killed, and compare what came of it with what should have."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.guard.storm.shop import PLACES, TABLES, Shop

PROGRAM = Path(__file__).with_name("shop.py")
STEPS = ("take_stock", "use_coupon", "ship", "write_mail")
SHOPS = 3
AHEAD = 3
"""Deliveries a shop has before it at one time."""
STOCK = 1_000_000


@dataclass
class Worker:
    """One process of the shop, and the deliveries it has not confirmed."""

    process: subprocess.Popen[bytes]
    ready: bool = False
    said: bytes = b""
    pending: dict[int, dict[str, Any]] = field(default_factory=dict)


class Campaign:
    """See the module.

    Attributes:
        deliveries: how many were confirmed.
        duplicates: how many of them were repeats of an order.
        kills: how many shops were killed, and
        aimed: how many of these at a chosen place inside a transaction.
        caught: kills while the shop had a delivery before it.
    """

    def __init__(
        self, place: dict[str, Any], seed: int, *, orders: int, repeats: int, by_hand: int, kills: int, careless: bool
    ) -> None:
        self.place = place
        self.random = Random(seed)
        self.orders = {order: self.random.randrange(1, 9) for order in range(1, orders + 1)}
        self.planned_kills = kills
        self.careless = careless
        self.deliveries = self.duplicates = self.kills = self.aimed = self.caught = 0
        self.answers: defaultdict[str, list[Any]] = defaultdict(list)
        self._queue = deque(self._plan(repeats, by_hand))
        self.planned = len(self._queue)
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()

    def _plan(self, repeats: int, by_hand: int) -> list[dict[str, Any]]:
        """Give all deliveries: those of one order near each other, so that they meet."""
        sent: list[tuple[float, dict[str, Any]]] = []
        for order, units in self.orders.items():
            messages = [f"message-{order}"] * repeats + [f"by-hand-{order}-{each}" for each in range(by_hand)]
            for message in messages:
                when = order + self.random.expovariate(1 / 4)
                sent.append((when, {"message": message, "order": order, "units": units}))
        sent.sort(key=lambda each: each[0])
        return [{"number": number, **delivery} for number, (_, delivery) in enumerate(sent)]

    def prepare(self) -> None:
        """Make the shop's tables."""
        shop = Shop(self.place)
        for text in TABLES:
            shop.execute(text)
        for order in self.orders:
            shop.execute("insert into orders values (?, 'paid', null)", order)
            shop.execute("insert into coupon values (?, null)", f"coupon-{order}")
        shop.raw.commit()
        shop.raw.close()

    def run(self) -> None:
        """Deliver everything, however often shops are killed on the way."""
        every = max(1, self.planned // (self.planned_kills + 1))
        next_kill = every
        try:
            for _ in range(SHOPS):
                self._open()
            while self._queue or any(worker.pending for worker in self._workers):
                for worker in self._workers:
                    self._feed(worker)
                self._listen()
                if self.deliveries >= next_kill:
                    next_kill += every
                    self._strike()
        finally:
            for worker in self._workers:
                worker.process.kill()
                self._bury(worker)

    def _open(self) -> None:
        words = [sys.executable, str(PROGRAM), json.dumps(self.place), *(["careless"] if self.careless else [])]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
        worker = Worker(process)
        self._workers.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

    def _feed(self, worker: Worker) -> None:
        while worker.ready and self._queue and len(worker.pending) < AHEAD:
            self._send(worker, self._queue.popleft())

    def _send(self, worker: Worker, delivery: dict[str, Any], **more: Any) -> None:
        worker.pending[delivery["number"]] = delivery
        line = json.dumps({**delivery, **more}).encode() + b"\n"
        try:
            worker.process.stdin.write(line)  # type: ignore[union-attr]
            worker.process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            return  # it has died; its end is seen in a moment, and what it had is delivered again

    def _listen(self) -> None:
        events = self._selector.select(30)
        assert events, "nothing was confirmed for 30 s"
        for key, _ in events:
            worker = key.data
            chunk = os.read(key.fd, 65536)
            if not chunk:
                self._died(worker)
                continue
            *lines, worker.said = (worker.said + chunk).split(b"\n")
            for line in lines:
                self._heard(worker, line)

    def _heard(self, worker: Worker, line: bytes) -> None:
        if line == b"ready":
            worker.ready = True
            return
        number, answer = json.loads(line)
        delivery = worker.pending.pop(number)
        self.deliveries += 1
        self.duplicates += bool(self.answers[delivery["message"]]) or delivery["message"].startswith("by-hand")
        self.answers[delivery["message"]].append(answer)

    def _strike(self) -> None:
        """Kill a shop: at a place inside its next delivery, or at once, wherever it is."""
        ready = [worker for worker in self._workers if worker.ready]
        if not ready:
            return
        worker = self.random.choice(ready)
        if self._queue and self.random.random() < 0.5:
            self.aimed += 1
            die = [self.random.choice(STEPS), self.random.choice(PLACES)]
            self._send(worker, self._queue.popleft(), die=die)
            return
        self._selector.select(self.random.random() * 0.01)  # wherever it is by then
        worker.process.send_signal(signal.SIGKILL)

    def _died(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._bury(worker)
        assert worker.process.returncode == -signal.SIGKILL, f"a shop ended by itself: {worker.process.returncode}"
        self.kills += 1
        self.caught += bool(worker.pending)
        again = list(worker.pending.values())
        self.random.shuffle(again)
        self._queue.extendleft(again)
        self._open()

    def _bury(self, worker: Worker) -> None:
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        worker.process.wait(10)
        for pipe in (worker.process.stdin, worker.process.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except BrokenPipeError:
                continue

    def differences(self) -> list[str]:
        """Return what does not balance, from the tables and from what was answered."""
        shop = Shop(self.place)
        read = shop.execute
        parcels = dict(read("select id, parcel from orders where state = 'shipped'"))
        used = {code: f"coupon-{order}" for code, order in read("select code, used_by from coupon")}
        mail = Counter(message for (message,) in read("select message from mail"))
        ((units,),), ((last,),) = read("select units from stock"), read("select last from counter")
        found = {
            "stock": STOCK - units - sum(self.orders.values()),
            "taken": sorted(read("select order_id, units from taken")) != sorted(self.orders.items()),
            "coupons": {code for code, order in used.items() if code != order},
            "numbers": last - len(self.orders),
            "parcels": sorted(parcels.values()) != list(range(1, len(self.orders) + 1)),
            "mail": mail != Counter(dict.fromkeys(self.answers, 1)),
            "answers": self._wrong_answers(parcels),
        }
        shop.raw.close()
        return [f"{name}: {what}" for name, what in found.items() if what]

    def _wrong_answers(self, parcels: dict[int, int]) -> list[str]:
        """One message of each order ships it, and each of its repeats is told that number; all others are told so."""
        told: defaultdict[int, list[Any]] = defaultdict(list)
        for message, answers in self.answers.items():
            if len(set(map(str, answers))) > 1:
                told[-1].append(f"{message} was told {answers}")
            told[int(message.split("-")[-1 if message.startswith("message") else 2])].append(answers[0])
        wrong = [str(each) for each in told.pop(-1, [])]
        for order, answers in told.items():
            numbers = [answer for answer in answers if answer != "shipped before"]
            if numbers != [parcels.get(order)]:
                wrong.append(f"order {order} is parcel {parcels.get(order)}, told were {answers}")
        return wrong
