"""One run through two lives of its engine: a first one with a fault, and a second one that must set all right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

import perdure
from perdure.model.event import Event
from perdure.store.base import Store, StoreOptions
from perdure.store.clock import system_clock
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.clock import this_machine
from perdure.store.sqlite.engine import SqliteStore
from perdure.testing.faults import Crash, Fault, FaultyStore
from perdure.verify.database import verify
from perdure.verify.examination import Report, examine
from tests.faults import programs
from tests.faults.memory import MemoryEvidence

RUN_ID = "run-1"
LEASE_S = 30
CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER})


class Mortal(FaultyStore):
    """A faulty store whose crash is for good: whoever survives it in this process reaches nothing any more."""

    dead = False
    client: asyncio.Task[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None

    def _cross(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crash(name)
        return super()._cross(name, function, *args, **kwargs)

    def _fail(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fault in CRASHES:
            self.dead = True
            self._interrupt()
        if self.fault is Fault.CANCEL:
            self._interrupt()
            return function(*args, **kwargs)
        return super()._fail(name, function, *args, **kwargs)

    def _interrupt(self) -> None:
        """Cancel the code that waits, at whatever await it is."""
        if self.client is not None and self.loop is not None:
            self.loop.call_soon_threadsafe(self.client.cancel)


class Shelf:
    """Where a store outlives its engines, with a clock that can be advanced."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self._path = path
        self._later = 0
        self._memory = MemoryStore(self._clock())

    def _clock(self) -> Callable[[], int]:
        clock = system_clock()
        return lambda: clock() + self._later

    def store(self) -> Store:
        """Return what a process start would open."""
        if self.kind == "memory":
            return self._memory
        machine = this_machine()
        options = StoreOptions(durability="process")
        return SqliteStore(self._path, options, machine._replace(ticks=lambda: machine.ticks() + self._later))

    def time_passes(self) -> None:
        """Let the leases of all who are silent end."""
        self._later += 2 * LEASE_S * 1_000_000
        store = self.store()
        store.open()
        store.sweep()
        store.close()

    def declare_dead(self) -> None:
        """Have the leases of all end, without their clocks having moved."""
        with closing(apsw.Connection(str(self._path))) as database:  # sqlite3 is another library: its locks would clash
            database.set_busy_timeout(5_000)
            database.execute("update worker set expires_at = 0 where state = 'live'")
        store = self.store()
        store.open()
        store.sweep()
        store.close()

    def examine(self) -> Report:
        """Check every invariant."""
        if self.kind == "memory":
            return examine(MemoryEvidence(self._memory), [RUN_ID])
        return verify(f"sqlite:///{self._path}", [RUN_ID])


def engine_on(store: Any, lease_s: float = LEASE_S) -> perdure.Engine:
    """Return an engine on a store of our own."""
    engine = perdure.Engine(
        "memory://",
        programs.WORKFLOWS,
        lease=lease_s,
        poll=0.02,
        hint=0.005,
        grace=5,
        evict_after=10,
        packages=["tests.faults"],
    )
    engine._store = store
    return engine


async def use(engine: perdure.Engine, program: str) -> str:
    """Start the run, or attach to it, see it through to its end, and return its state."""
    run = await engine.start(getattr(programs, program), 1, id=RUN_ID)
    if program == "cancelled":
        while not [event for event in await run.history() if event.type == "step_completed"]:
            await asyncio.sleep(0.001)
        if not _is_asked(engine, await run.history()):  # a second request would cancel the clean-up, too
            await run.cancel(actor="test", reason="test")
    with suppress(perdure.RunCancelled):
        await run.result()
    return str(await run.status())


def _is_asked(engine: perdure.Engine, log: list[perdure.Event]) -> bool:
    """Whether somebody has asked for the run to be cancelled."""
    store: Any = engine._store
    waiting = getattr(store, "inner", store).inbox(RUN_ID)
    return bool(waiting) or any(event.type == "cancel_requested" for event in log)


async def first_life(store: Mortal, program: str, lease_s: float = LEASE_S) -> None:
    """Use an engine until it has served, or until the fault has ended it."""
    engine = engine_on(store, lease_s)

    parts: list[Any] = []

    async def life() -> None:
        async with engine:
            parts.extend((engine._worker, engine._connection))
            await use(engine, program)

    task = store.client = asyncio.ensure_future(life())
    store.loop = asyncio.get_running_loop()
    done, _ = await asyncio.wait([task], timeout=20)
    assert done, f"the first life hangs: {store.fault} at {store.at} ({store.trace[-1:]})"
    error = None if task.cancelled() else task.exception()
    assert error is None or isinstance(error, Crash | perdure.StoreError), repr(error)
    await bury(*(parts or (engine._worker, engine._connection)))


async def bury(worker: Any, connection: Any) -> None:
    """End the threads of an engine that could not close."""
    if worker is not None:
        worker.running = False
        for service in worker._services:
            await service.stop()
        worker.lease.stop()
        for run in list(worker.host.runs.values()):
            run.drop("its process is gone")
        worker.host.threads.close(1.0)
    if connection is not None:
        connection.writer.abort()
        connection.reader.stop()
        connection.store.close()


async def second_life(shelf: Shelf, program: str) -> str:
    """Use a fresh engine on what the first one left, to the end."""
    async with engine_on(shelf.store()) as engine:
        return await asyncio.wait_for(use(engine, program), 10)


def canonical(shelf: Shelf) -> dict[str, Any]:
    """Return what a run came to, without when, by whom and in how many attempts."""
    store = shelf.store()
    store.open()
    row, events = store.get(RUN_ID), store.load(RUN_ID)
    if shelf.kind != "memory":
        store.close()
    assert row is not None
    answers = {event.op: _answer(event) for event in events if event.op is not None and event.type in ANSWERS}
    ends = [(event.type, event.payload) for event in events if event.op is None and event.type in ENDS]
    return {"status": row.status, "answers": answers, "ends": ends}


ANSWERS = frozenset(
    {
        "step_completed", "step_failed", "step_cancelled", "timer_fired", "checkpoint_reached", "value_published",
        "patch_taken",
    }
)  # fmt: skip
ENDS = frozenset({"run_started", "run_completed", "run_failed", "run_cancelled", "run_terminated"})


def _answer(event: Event) -> tuple[Any, ...]:
    if event.name in programs.AT_MOST_ONCE:
        return event.kind, event.name, "sent, or not known"
    payload = None if event.payload is None else msgspec.json.decode(event.payload)
    return event.type, event.kind, event.name, payload
