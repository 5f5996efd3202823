"""Real complaints about cancelling and about callers that give up."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

import perdure
from perdure import RunCancelled, Status
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import until

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


@everywhere
async def test_case_con_19(world: World) -> None:
    """A cancelled sync step keeps running in its thread while the status says it has stopped.

    The run stays `running` until the thread has ended, and only then is cancelled; after a time-out the next attempt
    does not begin before the thread of the first has ended. Source: tobymao/saq PR#194.
    """
    async with world.engine() as engine:
        run = await engine.start(flows.long_sync, 0.8, id="r")
        await world.ledger.until("wait_sync")
        await run.cancel()
        while world.ledger.count("wait_sync", phase="end") == 0:
            assert await run.status() == Status.RUNNING
            await asyncio.sleep(0.02)
        with pytest.raises(RunCancelled):
            await run.result(timeout=2)
        assert await engine.run(flows.times_out, 1.0) == 2
    ledger = world.ledger.entries("slow_thread", phase=None)
    assert [(entry.phase, entry.attempt) for entry in ledger] == [("start", 1), ("end", 1), ("start", 2), ("end", 2)]


@everywhere
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=[pytest.mark.nightly])])
async def test_case_con_20(world: World, times: int) -> None:
    """A run is cancelled before its first instruction, so that no handler writes its status.

    Started and cancelled in consecutive statements; while queued, delayed, in a retry delay, and parked.
    Source: paulomac1000/mikrus-mcp PR#25.
    """
    async with world.client() as client:
        for _ in range(times):
            await cancelled(await client.start(flows.two_steps))
            await cancelled(await client.start(flows.two_steps, delay="1h"))
    assert world.ledger.count() == 0
    async with world.engine(evict_after="100ms") as engine:
        for _ in range(times):
            run = await engine.start(flows.long_async, 30.0)
            await cancelled(run)
            after = world.ledger.count("wait_async", run.id)
            late = await engine.start(flows.retries_late)
            await world.ledger.until("fails_long", world.ledger.count("fails_long") or 1)
            await until(lambda late=late: "step_attempt_failed" in world.types(late.id))  # type: ignore[misc]
            await cancelled(late)
            assert world.ledger.count("wait_async", run.id) == after
            assert world.ledger.count("fails_long", late.id) == 1
            parked = await engine.start(flows.stuck)
            with pytest.raises(perdure.RunParked):
                await parked.result(timeout=30)
            await cancelled(parked)
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
