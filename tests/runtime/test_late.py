"""What comes late, to a run or a worker that has moved on, is passed over: nothing is recorded, nothing begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.run import Heartbeat
from perdure.model.status import EventType, Status
from perdure.model.write import COMMITTED, Change, Missing
from perdure.runtime import closing
from perdure.runtime.returning import Returns
from perdure.runtime.services.eviction import Eviction
from perdure.testing.author import Author, claims_for

GO = threading.Event()
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def afresh() -> None:
    GO.clear()
    CALLS.clear()


async def until(wanted: Callable[[], Any]) -> None:
    async with asyncio.timeout(40):
        while not wanted():
            await asyncio.sleep(0.002)


@perdure.step(timeout="30s")
def on_a_thread() -> None:
    info = perdure.step_info()
    CALLS.append("begun")
    GO.wait(10)
    info.heartbeat("late")
    CALLS.append("ended")


@perdure.step
async def dies_when_stopped() -> None:
    CALLS.append("begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        CALLS.append("ended")
        raise MemoryError from None


@perdure.workflow
async def busy(sync: bool) -> None:
    await (on_a_thread.aio() if sync else dies_when_stopped())


@perdure.workflow
def busy_on_a_thread() -> None:
    on_a_thread()


@pytest.mark.parametrize("sync", [True, False])
async def test_a_run_that_was_dropped_takes_nothing_in(tmp_db: str, sync: bool) -> None:
    async with perdure.Engine(tmp_db, [busy], grace=0) as engine:
        handle = await engine.start(busy, sync)
        await until(lambda: CALLS == ["begun"])
        worker: Any = engine._worker
        run = worker.host.runs[handle.id]
        (attempt,) = run.attempts.running.values()
        before = await handle.history()
        worker.host.fetch_inbox(run)
        run.drop("a test says so")
        run.drop("and once more")
        run.pump()
        run.hold(-1)
        run.answer(attempt.operation, b"{}", None)
        run.take_messages([])
        run.attempts.intended(attempt.operation, 1)
        run.attempts._sync_timeout(attempt)
        worker.host.left(run)
        closing.park(run, "too late", "nothing")
        GO.set()
        await until(lambda: CALLS == ["begun", "ended"])
        await until(lambda: worker.host.threads.busy == 0)
        assert await handle.history() == before
        assert handle.id not in worker.host.runs


async def test_a_sync_body_whose_run_was_dropped_ends_at_its_next_operation(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [busy_on_a_thread], grace=0) as engine:
        handle = await engine.start(busy_on_a_thread)
        await until(lambda: CALLS == ["begun"])
        worker: Any = engine._worker
        worker.host.runs[handle.id].drop("a test says so")
        GO.set()
        await until(lambda: CALLS == ["begun", "ended"])
        assert await handle.status() == Status.RUNNING


@perdure.workflow
async def quick() -> int:
    return 1


async def test_what_was_claimed_by_a_life_that_is_over_does_not_begin(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [quick], poll="9s") as engine:
        worker: Any = engine._worker
        author = Author("old", engine._store.now())
        create = author.create(workflow="quick")
        decide = claims_for("another life")
        claimed = decide(create.row, create.events, engine._store.now())
        worker.created(create, recorded=True)
        await worker._take(claimed)
        worker._park_corrupt(claimed, perdure.StoreCorrupt("damaged"))
        assert not worker.host.runs
    worker._beaten(Heartbeat(alive=False, owned={}))
    assert worker._rejoining is None, "a worker that has stopped does not come back"


async def test_a_worker_gives_up_waiting_for_a_suspect(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [naps, quick], poll="20ms", evict_after="60s") as engine:
        worker: Any = engine._worker
        handle = await engine.start(naps)
        await until(lambda: handle.id in worker.host.idle)
        worker._suspect, worker._suspect_until = "nobody", 0.0
        worker.want_claim()
        await until(lambda: worker._suspect is None)
        await until(lambda: handle.id not in worker.host.idle)
        assert await engine.run(quick) == 1
        assert await handle.result("10s") == 1


@perdure.workflow
async def naps() -> int:
    await asyncio.sleep(0.5)
    return 1


@perdure.workflow
async def holds() -> None:
    await perdure.sleep("1h")


async def test_a_heartbeat_that_tells_of_a_message_makes_its_run_look(tmp_db: str) -> None:
    async with (
        perdure.Engine(tmp_db, worker=False) as client,
        perdure.Engine(tmp_db, [holds], poll="9s", evict_after="60s") as engine,
    ):
        worker: Any = engine._worker
        handle = await engine.start(holds)
        await until(lambda: handle.id in worker.host.idle)
        run = worker.host.runs[handle.id]
        await client.cancel(handle.id)
        worker.check_owned({handle.id: (run.recorder.epoch, run.inbox_seen)})
        assert not run.launcher.fetching
        worker.check_owned({handle.id: (run.recorder.epoch, run.inbox_seen + 1)})
        with pytest.raises(perdure.RunCancelled):
            await handle.result("5s")


@perdure.step
async def one() -> int:
    return 1


@perdure.workflow
async def long() -> int:
    total = 0
    for _ in range(1500):
        total += await one()
    await asyncio.sleep(0.05)
    return total


async def test_a_long_log_is_replayed_piece_by_piece(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [long], poll="20ms", evict_after="10ms") as engine:
        handle = await engine.start(long)
        assert await handle.result("15s") == 1500
        assert len([event for event in await handle.history() if event.kind == "step"]) == 1500


async def test_an_error_while_a_body_goes_on_parks_its_run(tmp_db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with perdure.Engine(tmp_db, [busy], grace=0) as engine:
        handle = await engine.start(busy, False)
        await until(lambda: CALLS == ["begun"])
        worker: Any = engine._worker
        run = worker.host.runs[handle.id]

        def broken() -> None:
            raise ZeroDivisionError("a bug")

        run.execution.turn = broken
        run.hold(1)
        run.hold(-1)
        with pytest.raises(perdure.RunParked, match="internal error: ZeroDivisionError"):
            await handle.result("5s")


class Host:
    """As much of a worker's host as its small parts need."""

    def __init__(self, loaded: Any = ()) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = SimpleNamespace(evict_after_us=1_000, concurrency=1, hint_us=500)
        self.idle: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.time = 10_000
        self.rooms = 0
        self.sent: list[Any] = []
        self.loaded = loaded
        self.writer = SimpleNamespace(submit=lambda write, waiter: self.sent.append((write, waiter)))
        self.reader = SimpleNamespace(call=self.call)
        self.store = SimpleNamespace(load=None)
        self.commit_ids = SimpleNamespace(take=lambda: 1)

    def now(self) -> int:
        return self.time

    def on_room(self) -> None:
        self.rooms += 1

    def call(self, *_: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        if isinstance(self.loaded, Exception):
            future.set_exception(self.loaded)
        else:
            future.set_result(self.loaded)
        return future


async def test_a_run_that_wakes_up_at_once_is_not_put_out_of_memory() -> None:
    host: Any = Host()
    evicted: list[str] = []
    for name, since, wake in (("soon", 0, 10_100), ("later", 0, 90_000), ("never", 0, None), ("fresh", 9_900, 90_000)):
        run = SimpleNamespace(next_wake=wake, evict=lambda name=name: evicted.append(name))
        host.idle[name] = (run, since)
    await Eviction(host).tick()
    assert evicted == ["later", "never"]


@pytest.mark.parametrize(
    "loaded, given_back", [("event", True), (perdure.StoreUnavailable("gone"), False), ((), False), ("newer", False)]
)
async def test_a_run_out_of_sight_is_given_back_when_its_log_says_so(loaded: Any, given_back: bool) -> None:
    epoch = 8 if loaded == "newer" else 7
    if isinstance(loaded, str):
        loaded = seal("lost", EMPTY_TAIL, [Draft(EventType.RUN_CLAIMED, 1)], epoch, 1)
    host: Any = Host(loaded)
    returns = Returns(host)
    returns.reconcile({"lost": (7, 0), "here": (1, 0)}, {"here"})
    await asyncio.sleep(0)
    assert host.sent == [], "said once, it may just be late"
    returns.reconcile({"lost": (7, 0)}, set())
    await asyncio.sleep(0.01)
    assert bool(host.sent) is given_back
    for write, waiter in host.sent:
        assert (write.change.before, write.change.after) == (Status.RUNNING, Status.PENDING)
        waiter.settled(write, Missing())
        assert host.rooms == 0
        waiter.settled(write, COMMITTED)
        assert host.rooms == 1


@pytest.mark.parametrize("kind", [EventType.STEP_ATTEMPT_FAILED, EventType.STEP_HEARTBEAT, EventType.STEP_FAILED])
def test_the_value_of_an_event_that_cannot_be_stored_is_left_out(kind: EventType) -> None:
    draft = Draft(kind, 1, "1", "step", "s", 1, input=b"in", payload=b"x" * 100)
    kept = closing._without_value(draft, b"why")
    assert kept.input is None
    assert kept.payload == (b"why" if kind == EventType.STEP_FAILED else None)
    assert closing._without_value(replace(draft, payload=b"y"), b"why").payload == b"y"


def test_a_run_whose_every_event_is_refused_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    dropped: list[str] = []
    logger = SimpleNamespace(error=lambda *words: None)
    run: Any = SimpleNamespace(id="r", replaced_at=1, host=SimpleNamespace(logger=logger), drop=dropped.append)
    events = seal("r", EMPTY_TAIL, [Draft(EventType.STEP_COMPLETED, 1)], 1, 1)
    change = Change(Status.RUNNING, 1, Status.COMPLETED, 1, None, None, 0, None, 1)
    closing.replace_unstorable(run, events, change, ValueError("no"))
    assert dropped == ["nothing can be recorded"]
