"""Real complaints about cancelling and about callers that give up."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

import perdure
from perdure import Queue, RunCancelled, Status
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import flag, note, until

SCALES = pytest.mark.parametrize("runs", [16, pytest.param(200, marks=[pytest.mark.nightly])])


async def cancelled(run: perdure.Run[Any]) -> None:
    """Cancel a run and wait, for at most two seconds, until it is cancelled."""
    assert await run.cancel(reason="the case")
    with pytest.raises(RunCancelled):
        await run.result(timeout=2)
    assert await run.status() == Status.CANCELLED


def begun(world: World, engine: perdure.Engine, run_id: str) -> int:
    """Count the steps that a run has begun one by one, with the one whose thread has yet to come to its first line."""
    worker: Any = engine._worker
    resident = worker.host.runs.get(run_id)
    under_way = [] if resident is None else [int(op) for op in resident.attempts.running]
    return max([world.ledger.quick_count("loop_step", run_id), *(op + 1 for op in under_way)])


@everywhere
@SCALES
async def test_case_con_13(world: World, runs: int) -> None:
    """A cancel is swallowed by a step that finishes at that moment; it is as if it had never been asked.

    Endless loops of short steps, async and on threads, cancelled at random times.
    Source: temporalio/sdk-python#620.
    """
    async with world.engine(concurrency=runs) as engine:
        handles = [await engine.start(flows.endless, bool(n % 2), id=f"r{n}") for n in range(runs)]

        async def later(run: perdure.Run[Any]) -> None:
            await asyncio.sleep(random.uniform(0.05, 0.4))
            assert await run.cancel()
            before = begun(world, engine, run.id)
            with pytest.raises(RunCancelled):
                await run.result(timeout=2)
            assert world.ledger.quick_count("loop_step", run.id) <= before + 1

        await asyncio.gather(*map(later, handles))


@everywhere
async def test_case_con_17(world: World) -> None:
    """A caller gives up waiting, and the workflow hangs or ends with it.

    The waiting task is cancelled, a wait times out, the caller's whole event loop ends; the run goes on.
    Source: dbos-inc/dbos-transact-py#425.
    """
    async with world.engine() as engine:
        run = await engine.start(flows.nap, 1.2, id="r")
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.result(), 0.1)
        with pytest.raises(TimeoutError, match="it goes on"):
            await run.result(timeout=0.1)

        def other_loop() -> None:
            async def give_up() -> None:
                async with world.client() as client, asyncio.timeout(0.2):
                    await client.get("r").result()

            with pytest.raises(TimeoutError):
                asyncio.run(give_up())

        await asyncio.to_thread(other_loop)
        assert await run.status() == Status.RUNNING
        assert await run.result(timeout=30) == "rested"
        assert await run.result() == "rested"


@perdure.step
def held_thread() -> None:
    note()
    while not flag("go").exists():
        time.sleep(0.01)
    note(phase="end")


@perdure.workflow
async def holds_thread() -> None:
    await held_thread.aio()


@everywhere
async def test_case_con_19(world: World) -> None:
    """A cancelled sync step keeps running in its thread while the status says it has stopped.

    The run stays `running`, and keeps the only place of its key, until the thread has ended, also when its worker stops
    meanwhile; only then is it cancelled, and the next run of the key begins, with a worker that was free all along.
    After a time-out the next attempt does not begin before the thread of the first has ended, and no run of the key
    runs beside it. Source: tobymao/saq PR#194.
    """
    code = [holds_thread, flows.times_out, flows.trivial]
    place: dict[str, Any] = {"queue": "q", "partition_key": "k"}
    one = world.engine(code, queues=[Queue("q", concurrency_per_key=1)], grace="60s")
    await one.open()
    await one.start(holds_thread, id="r", **place)
    await world.ledger.until("held_thread")
    async with world.engine(code, queues=["q"]) as other:
        closing = asyncio.create_task(one.close())
        try:
            run = other.get("r")
            assert await run.cancel()
            after = await other.start(flows.trivial, 1, **place)
            await until(lambda: "cancel_requested" in world.types("r"), what="its worker knows of it")
            for _ in range(20):
                await asyncio.sleep(0.02)
                assert await run.status() == Status.RUNNING
            assert await after.status() == Status.PENDING
        finally:
            flag("go").touch()
            await closing
        with pytest.raises(RunCancelled):
            await run.result(timeout=30)
        assert await after.result(timeout=30) == 1
        slow = await other.start(flows.times_out, 1.0, **place)
        await world.ledger.until("slow_thread")
        follows = await other.start(flows.trivial, 2, **place)
        assert await slow.result(timeout=30) == 2
        assert await follows.result(timeout=30) == 2
        assert (await other.queue("q").info()).slots == 0
    entries = [entry for entry in world.ledger.entries(phase=None) if entry.step != "last"]
    told = [(entry.step, entry.phase, entry.attempt) for entry in entries]
    assert told[:2] == [("held_thread", "start", 1), ("held_thread", "end", 1)]
    assert told[2:] == [("slow_thread", phase, attempt) for attempt in (1, 2) for phase in ("start", "end")]
    others = [entry.at for entry in world.ledger.entries("last")]
    assert len(others) == 2
    spans = list(zip(entries[::2], entries[1::2], strict=True))
    assert not [at for at in others for since, to in spans if since.at < at < to.at]


@everywhere
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=[pytest.mark.nightly])])
async def test_case_con_20(world: World, times: int) -> None:
    """A run is cancelled before its first instruction, so that no handler writes its status.

    Started and cancelled in consecutive statements; while queued, delayed, in a retry delay, and parked. Each time its
    deduplication key is free for the next one, and so is the only place of its queue.
    Source: paulomac1000/mikrus-mcp PR#25.
    """
    queue = Queue("q", concurrency=1)

    async def begin(engine: perdure.Engine, workflow: Any, *args: Any, **options: Any) -> perdure.Run[Any]:
        run = await engine.start(workflow, *args, queue="q", deduplication_key=f"{workflow.name}{options}", **options)
        assert run.is_new
        return run

    async with world.client(queues=[queue]) as client:
        for _ in range(times):
            await cancelled(await begin(client, flows.two_steps))
            await cancelled(await begin(client, flows.two_steps, delay="1h"))
    assert world.ledger.count() == 0
    async with world.engine(queues=[queue], evict_after="100ms") as engine:
        for n in range(times):
            run = await begin(engine, flows.long_async, 30.0)
            await cancelled(run)
            after = world.ledger.count("wait_async", run.id)
            late = await begin(engine, flows.retries_late)
            await world.ledger.until("fails_long", n + 1)
            await until(lambda late=late: "step_attempt_failed" in world.types(late.id))  # type: ignore[misc]
            await cancelled(late)
            assert world.ledger.count("wait_async", run.id) == after
            assert world.ledger.count("fails_long", late.id) == 1
            parked = await begin(engine, flows.stuck)
            with pytest.raises(perdure.RunParked):
                await parked.result(timeout=30)
            await cancelled(parked)
        assert (await engine.queue("q").info()).slots == 0
    assert world.rows("select count(*) from run where status <> 'cancelled' or owner is not null") == [(0,)]


@everywhere
@SCALES
async def test_case_con_22(world: World, runs: int) -> None:
    """Clean-up code on cancel runs only sometimes.

    try: ten steps, finally: step `release`; cancelled at random times. Every run that is cancelled in one of the ten
    has released, once. Source: temporalio/sdk-python#1224.
    """
    async with world.engine(concurrency=runs) as engine:

        async def one(n: int) -> None:
            run = await engine.start(flows.tidy, id=f"r{n}")
            await asyncio.sleep(random.uniform(0, 0.5))
            asked = await run.cancel()
            try:
                assert await run.result(timeout=30) == "through"
            except RunCancelled:
                assert asked

        await asyncio.gather(*map(one, range(runs)))
    began, released = world.ledger.counts("loop_step"), world.ledger.counts("release")
    # A cancel that comes after the last step meets the await of `release` itself, and stops it as asyncio would.
    assert {run for run, steps in began.items() if steps < 10} <= released.keys()
    assert set(released.values()) <= {1}


@everywhere
async def test_case_con_22_killed(world: World) -> None:
    """The same with the worker killed during `release`: it runs again elsewhere."""
    async with world.client() as client:
        run = await client.start(flows.tidy, id="r")
        child = world.worker("W1", fault="kill before step_completed release")
        await world.ledger.until("loop_step", 2)
        await run.cancel()
        assert child.finish().code == -9
        world.worker("W2")
        with pytest.raises(RunCancelled):
            await run.result(timeout=30)
    assert world.ledger.count("release") == 2


@everywhere
@pytest.mark.parametrize("times", [60, pytest.param(300, marks=[pytest.mark.nightly])])
async def test_case_con_23(world: World, times: int) -> None:
    """A cancelled start call creates a nameless run.

    (The part that exists: `start`; children come later.) Cancelled 0 to 5 ms after it was called: there is exactly
    one run with the asked id, or none, and the engine works on. Source: dbos-inc/dbos-transact-py PR#732.
    """
    async with world.engine() as engine:
        for n in range(times):
            task = asyncio.create_task(engine.start(flows.trivial, n, id=f"asked-{n}"))
            await asyncio.sleep(random.uniform(0, 0.005) if n % 3 else 0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await engine.run(flows.trivial, -1, id="after") == -1
        known = {f"asked-{n}" for n in range(times)} | {"after"}
        began = time.monotonic()
        while await left(engine):
            assert time.monotonic() - began < 10
            await asyncio.sleep(0.02)
        ids = [info.id async for info in engine.list()]
        assert len(set(ids)) == len(ids)
        assert set(ids) <= known
        assert engine._worker is not None
        assert engine._worker.host.free == 100


async def left(engine: perdure.Engine) -> bool:
    return any([info async for info in engine.list(status=["pending", "running", "waiting"])])
