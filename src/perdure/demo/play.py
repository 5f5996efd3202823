"""Conducts the demonstration: delivers the callbacks, kills the workers, and reads the outcome from outside."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from perdure.api.engine import Engine
from perdure.api.reading import RunInfo
from perdure.demo.cast import Cast
from perdure.demo.ledger import Audit, Demand, audit
from perdure.demo.orders import Order, callbacks, load
from perdure.errors import IdConflict, UsageError
from perdure.model.status import LIVE

LIMIT_S = 150.0
KILL_AT = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
"""Shares of the work after which a worker is killed."""
DEPLOY_AT = 0.35
"""Share of the callbacks after which the later release is deployed, with orders of the first one under way."""
BEGUN_AT = 0.1
"""Share of the work that has to be done by then."""
HELD_AT = 0.6
"""Share of the callbacks after which no more come until the later release is there: new orders have to begin on it."""
PACE_S = 0.01
"""Pause between two callbacks, so that they keep coming while workers die."""
RELEASES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """How far the demonstration is.

    Attributes:
        orders: orders in all.
        done: orders that went all the way.
        kills: workers killed so far.
        killed: requests that were cut off just now, when a worker was killed; 0 otherwise.
        deployed: orders under way just now, when the later release was deployed; 0 otherwise.
    """

    orders: int
    done: int
    kills: int
    killed: int = 0
    deployed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the demonstration ended.

    Attributes:
        audit: what the outside ledger says.
        runs: states of the runs, by the engine's word.
        new: callbacks that started a run.
        duplicates: callbacks that attached to the run that was there.
        conflicts: callbacks refused because their payment id belongs to another body.
        kills: workers killed with ``kill -9``.
        cut: requests that were under way when their worker was killed.
        under_way: orders of the first release that were under way when the later one was deployed.
        begun: release to orders that began on it, by the engine's word.
        strayed: orders for which another release had effects than the one they began on, by the ledger's word.
        seconds: how long it took.
    """

    audit: Audit
    runs: dict[str, int]
    new: int
    duplicates: int
    conflicts: int
    kills: int
    cut: int
    under_way: int
    begun: dict[str, int]
    strayed: int
    seconds: float

    @property
    def balanced(self) -> bool:
        """Whether the ledger balances and as many callbacks started a run as there are payments."""
        kept = self.strayed == 0 and self.under_way > 0 and len(self.begun) > 1
        return self.audit.balanced and self.new == self.audit.orders and self.kills > 0 and kept

    def document(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        found = asdict(self)
        found["audit"]["reattempts"] = self.audit.reattempts
        del found["audit"]["releases"]  # one entry per order
        found["seconds"] = round(self.seconds, 2)
        return {"balanced": self.balanced, **found}


@dataclass(frozen=True, slots=True)
class Gate:
    """What deliveries and the deploy wait for of each other.

    Attributes:
        enough: so many callbacks were delivered that the later release can be deployed.
        deployed: new orders begin on it.
    """

    enough: asyncio.Event = field(default_factory=asyncio.Event)
    deployed: asyncio.Event = field(default_factory=asyncio.Event)


Tell = Callable[[Scene], None]


async def play(*, orders: int, seed: int, folder: Path | None, tell: Tell) -> Outcome:
    """Give the demonstration.

    Args:
        orders: how many of the orders in the CSV.
        seed: decides the order of the callbacks and what fails outside.
        folder: keeps database and ledger; a temporary one, removed at the end, by default.
        tell: called whenever there is something to see.

    Raises:
        UsageError: there are not so many orders, or the folder cannot be used.
    """
    paid = load(orders)
    with _place(folder) as place, tempfile.TemporaryDirectory(prefix="perdure-") as short:
        began = monotonic()
        url = f"sqlite:///{place / 'shop.db'}"
        sent: Counter[str] = Counter()
        cast = Cast(folder=place, socket=Path(short) / "services", url=url, seed=seed)
        async with Engine(url, worker=False) as engine:
            try:
                await cast.open()
                async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
                    arriving = callbacks(paid, seed)
                    gate = Gate()
                    delivering = group.create_task(_deliver(engine, arriving, sent, gate))
                    group.create_task(_disturb(cast, len(paid), tell))
                    group.create_task(_deploy(engine, cast, gate, len(paid), tell))
                    group.create_task(_watch(engine, cast, delivering, len(paid), tell))
            except TimeoutError:
                pass  # the ledger will show what is missing
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
            finally:
                await cast.close()
            found = [info async for info in engine.list()]
        return _outcome(
            paid,
            found,
            audit(place / "ledger.db", [Demand(order.order_id, order.cents) for order in paid]),
            sent,
            cast,
            monotonic() - began,
        )


def _outcome(
    paid: list[Order], found: list[RunInfo], by_ledger: Audit, sent: Counter[str], cast: Cast, seconds: float
) -> Outcome:
    began_on = {order.order_id: info.version for info in found for order in paid if order.payment_id == info.id}
    return Outcome(
        audit=by_ledger, runs=dict(Counter(info.status.value for info in found)), under_way=cast.under_way,
        begun=dict(sorted(Counter(began_on.values()).items())),
        strayed=sum(by_ledger.releases.get(order) != (release,) for order, release in began_on.items()),
        new=sent["new"], duplicates=sent["duplicate"], conflicts=sent["conflict"], kills=cast.kills, cut=cast.cut,
        seconds=seconds,
    )  # fmt: skip


async def _deliver(engine: Engine, arriving: list[Order], counts: Counter[str], gate: Gate) -> None:
    """Be the web hook: each callback is a start under the payment's id. Counts what became of them."""
    known: set[str] = set()
    for number, callback in enumerate(arriving):
        if number >= DEPLOY_AT * len(arriving):
            gate.enough.set()
        if number >= HELD_AT * len(arriving):
            await gate.deployed.wait()
        try:
            await engine.start("fulfil", asdict(callback), id=callback.payment_id)
        except IdConflict:
            counts["conflict"] += 1
        else:
            counts["duplicate" if callback.payment_id in known else "new"] += 1
            known.add(callback.payment_id)
        await asyncio.sleep(PACE_S)


async def _disturb(cast: Cast, orders: int, tell: Tell) -> None:
    """Kill a worker, with requests under way, each time another share of the parcels has left."""
    for share in KILL_AT:
        while True:
            state = await cast.state()
            if state.done["ship"] >= orders:
                return
            if state.done["ship"] >= share * orders and await cast.kill_busy_worker(state):
                break
            await asyncio.sleep(0.02)
        tell(Scene(orders=orders, done=state.done["notify"], kills=cast.kills, killed=max(state.in_flight.values())))


async def _deploy(engine: Engine, cast: Cast, gate: Gate, orders: int, tell: Tell) -> None:
    """Deploy the later release while orders of the first one are under way."""
    await gate.enough.wait()
    while True:
        state = await cast.state()
        if state.done["charge"] >= BEGUN_AT * orders:
            break
        await asyncio.sleep(0.02)
    await cast.deploy()
    cast.under_way = len([info async for info in engine.list(status=LIVE) if info.version == "1.0.0"])
    state = await cast.state()
    tell(Scene(orders=orders, done=state.done["notify"], kills=cast.kills, deployed=cast.under_way))
    while True:
        if len(await engine.versions.list("fulfil")) == RELEASES:
            break
        await asyncio.sleep(0.02)
    gate.deployed.set()


async def _watch(engine: Engine, cast: Cast, delivering: asyncio.Task[None], orders: int, tell: Tell) -> None:
    """Wait until every callback is delivered and no run is under way."""
    while True:
        state = await cast.state()
        tell(Scene(orders=orders, done=state.done["notify"], kills=cast.kills))
        if delivering.done() and not [info async for info in engine.list(status=LIVE, limit=1)]:
            return
        await asyncio.sleep(0.1)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Give the folder for database and ledger, made if need be.

    Raises:
        UsageError: it cannot be made or written, or holds another demonstration.
    """
    if folder is None:
        temporary = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [path.name for path in folder.iterdir() if path.name in ("shop.db", "ledger.db")]
        if not taken:
            (folder / "processes.log").touch()
    except OSError as error:
        message = f"cannot use the folder {folder}: {error.strerror}"
        raise UsageError(message) from None
    if taken:
        message = f"the folder {folder} holds a demonstration already"
        raise UsageError(message, hint="give another folder, or remove this one")
    yield folder.resolve()
