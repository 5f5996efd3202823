"""Workers of transactional steps that die and freeze, and what must balance after them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import perdure
from tests.guard.storm import worker
from tests.guard.storm.shop import TABLES, Shop
from tests.guard.storm.worker import PARTS, fulfil
from tests.process import Child, Spawner

PROGRAM = Path(worker.__file__)
STOCK = 1_000_000
LOOK_S = 0.02
Fate = Mapping[int, Literal["dies", "freezes"]]
"""Number of a commit or close to what a worker does there."""


class Fleet:
    """Two workers. One that dies is replaced; one that froze is let go on after its lease.

    Beside what a worker does to itself at a commit, it is stopped wherever it is: so often within the whole.

    Attributes:
        kills: how many died.
        freezes: how many froze and went on, and
        aimed: how many of these at a commit.
    """

    def __init__(
        self, spawn: Spawner, url: str, place: dict[str, Any], *, kills: int = 0, dies: float = 0.0, freezes: int = 0,
        freezing: float = 0.0, longest_s: float = 2.0, fates: Sequence[Fate] = (),
    ) -> None:  # fmt: skip
        """Set up, not yet started.

        Args:
            spawn: starts the workers.
            url: the engine's.
            place: of the application's database.
            kills: how many workers are killed wherever they are.
            dies: how probable it is that one dies at a commit, and at a close.
            freezes: how many are frozen wherever they are.
            freezing: how probable it is that one freezes at a commit, and at a close.
            longest_s: how long one is frozen at most; at least one and a half leases.
            fates: of the first workers, what certainly happens to them.
        """
        self._spawn, self._url = spawn, url
        self._argv = (sys.executable, PROGRAM, url, json.dumps(place), str(dies), str(freezing))
        self._fates = iter(fates)
        self._luck, self._longest_s = Random(1), longest_s
        self._blows = [self._freeze] * freezes + [self._kill] * kills
        self._luck.shuffle(self._blows)
        self._workers: list[Child] = []
        self._thaw_at: dict[Child, float] = {}
        self._said: defaultdict[Child, Counter[str]] = defaultdict(Counter)
        self.kills = self.freezes = self.aimed = 0

    async def sell(self, runs: int) -> dict[int, list[int]]:
        """Have the runs executed; give what each returned. Nothing is under way any more then."""
        planned = len(self._blows)
        async with perdure.Engine(self._url, [fulfil], worker=False) as engine:
            orders = {f"order-{order}": order for order in range(runs)}
            tasks = {order: asyncio.create_task(engine.run(fulfil, order, id=name)) for name, order in orders.items()}
            self._workers = [self._start(), self._start()]
            while self._thaw_at or not all(task.done() for task in tasks.values()):
                await asyncio.sleep(LOOK_S)
                self._look()
                done = planned - len(self._blows)
                if self._blows and self._sold() * (planned + 1) > worker.PARTS * runs * (done + 1):
                    self._strike()
        await asyncio.to_thread(self._close)
        return {order: task.result() for order, task in tasks.items()}

    def _start(self) -> Child:
        return self._spawn(*self._argv, json.dumps(next(self._fates, {})))

    def _sold(self) -> int:
        """Give how many transactions were committed, as far as their workers lived to say so."""
        return sum(said["sold"] for said in self._said.values())

    def _strike(self) -> None:
        """Do the next blow to a worker that is at work, if there is one."""
        busy = [each for each in self._workers if self._said[each]["ready"] and each not in self._thaw_at]
        if busy:
            self._blows.pop()(self._luck.choice(busy))

    def _kill(self, each: Child) -> None:
        each.send(signal.SIGKILL)

    def _freeze(self, each: Child) -> None:
        each.send(signal.SIGSTOP)
        self._thaw_at[each] = time.monotonic() + worker.LEASE_S * self._luck.uniform(1.5, self._longest_s)

    def _look(self) -> None:
        """See who died, who froze by itself, and whose time to go on it is."""
        for number, each in enumerate(self._workers):
            each.listen(0)
            before, self._said[each] = self._said[each], Counter(each.out.split())
            if each.process.poll() is not None:
                assert each.process.returncode == -signal.SIGKILL, each.err
                self.kills += 1
                self._thaw_at.pop(each, None)
                self._workers[number] = self._start()
            elif self._said[each]["frozen"] > before["frozen"]:
                self.aimed += 1
                self._freeze(each)
            elif time.monotonic() >= self._thaw_at.get(each, float("inf")):
                del self._thaw_at[each]
                each.send(signal.SIGCONT)
                self.freezes += 1

    def _close(self) -> None:
        """End the workers in order, so that no transaction is left. They may still die and freeze."""
        for each in self._workers:
            each.send(signal.SIGTERM)
        for each in self._workers:
            while each.process.poll() is None:
                each.send(signal.SIGCONT)
                each.listen(LOOK_S)
            assert each.process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM), each.err  # or before it was ready


def open_shop(place: dict[str, Any]) -> None:
    """Make the shop's tables."""
    shop = Shop(place)
    for text in TABLES:
        shop.execute(text)
    shop.raw.commit()
    shop.raw.close()


def check_books(place: dict[str, Any], results: dict[int, list[int]]) -> None:
    """Compare what was sold with what the runs returned: each sale once, and nothing beside them."""
    shop = Shop(place)
    sold = shop.execute("select order_id, step, units from taken")
    expected = {
        (order, f"part-{part}", number) for order, numbers in results.items() for part, number in enumerate(numbers)
    }
    assert set(sold) == expected
    assert len(sold) == PARTS * len(results)
    assert sorted(number for _, _, number in sold) == list(range(1, len(sold) + 1))
    assert shop.execute("select units from stock") == [(STOCK - len(sold),)]
    shop.raw.close()
