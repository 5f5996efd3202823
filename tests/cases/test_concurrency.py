"""Real complaints about concurrency: parallel steps, sets, many deciders, threads and a blocked loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import perdure
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import until

FAN = ["a", "b", "c", ["x0", "x1", "x2"], ["y0", "y1", "y2"]]


async def kill_and_go_on(world: World, flow: str, runs: int, kills: int) -> list[Any]:
    """Kill a worker ``kills`` times while the runs are under way, each next one with another hash seed.

    None of the runs may be taken for one that kills its workers, so the limit of deaths is high.
    """
    async with world.client() as client:
        handles: list[perdure.Run[Any]] = [await client.start(flow, id=f"r{n}") for n in range(runs)]
        for n in range(kills):
            before = world.ledger.count()
            env = {"PYTHONHASHSEED": str(n)}
            child = world.worker(f"W{n}", concurrency=max(2, runs // 2), max_deaths=50, env=env)
            await until(lambda before=before: world.ledger.count() > before + runs, what="some steps ran")  # type: ignore[misc]
            child.destroy()
        world.worker("last", max_deaths=50, env={"PYTHONHASHSEED": "99"})
        return [await handle.result(timeout=30) for handle in handles]


def one_record_each(world: World) -> bool:
    query = "select run_id, op from event where type = 'step_completed' group by run_id, op having count(*) > 1"
    return world.rows(query) == []


@everywhere
@pytest.mark.parametrize("runs,kills", [(12, 2), pytest.param(100, 6, marks=[pytest.mark.nightly])])
async def test_case_con_01(world: World, runs: int, kills: int) -> None:
    """Parallel steps get their numbers by luck; recovery sees another order and loops on a mismatch.

    A gather of steps and of chains of steps with random durations, killed at random points, recovered elsewhere.
    Source: dbos-inc/dbos-transact-py#688, temporalio/sdk-python#1578.
    """
    assert await kill_and_go_on(world, "fan", runs, kills) == [FAN] * runs
    assert one_record_each(world)
    for label in "abc":
        assert max(world.ledger.counts(label).values()) <= 1 + kills


@everywhere
@pytest.mark.parametrize("runs,kills", [(6, 3), pytest.param(50, 10, marks=[pytest.mark.nightly])])
async def test_case_con_02(world: World, runs: int, kills: int) -> None:
    """asyncio's helpers iterate over sets, so that a replay schedules in another order.

    wait, as_completed, TaskGroup, Queue and Lock around steps; recovered under other hash seeds: no mismatch.
    Source: temporalio/sdk-python#429, temporalio/sdk-python#518.
    """
    results = await kill_and_go_on(world, "tools", runs, kills)
    for result in results:
        assert sorted(result["wait"]) == ["wp0", "wq0", "wr0"]
        assert result["completed"] == ["k", "l", "m"]
        assert result["group"] == [["g0", "g1", "g2"], ["h0", "h1", "h2"]]
        assert result["queue"] == ["n0", "n1", "n2", "n3"]
    assert one_record_each(world)


@everywhere
@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=[pytest.mark.nightly])])
async def test_case_con_06(world: World, runs: int) -> None:
    """Several wake-ups at one instant: two deciders schedule the same next step.

    Three timers due in the same microsecond, first-of and all-of, the run out of memory meanwhile, four workers.
    Source: conductor-oss/conductor#208, Netflix/conductor#1752.
    """
    engines = [world.engine(name=f"W{n}", evict_after="50ms") for n in range(4)]
    await asyncio.gather(*(engine.open() for engine in engines))
    starts: list[Coroutine[Any, Any, perdure.Run[Any]]] = [
        engines[n % 4].start(("all_of", "first_of")[n % 2], due=3.0, id=f"r{n}") for n in range(runs)
    ]
    handles: list[perdure.Run[Any]] = await asyncio.gather(*starts)
    assert [await handle.result(timeout=30) for handle in handles] == ["all", "first"] * (runs // 2)
    await asyncio.gather(*(engine.close() for engine in engines))
    assert set(world.ledger.counts("last").values()) == {1}
    assert world.rows("select count(distinct run_id) from event where type = 'run_waiting'")[0][0] > runs / 2


@everywhere
async def test_case_con_07(world: World) -> None:
    """Blocking code in one job stops the others: sync functions run on the event loop.

    Sync steps of a second run side by side and do not delay async ones. An async step that blocks the loop for three
    leases is not executed twice, and a warning names it. Source: hatchet-dev/hatchet#1665, PostHog/posthog PR#39938.
    """
    async with world.engine(concurrency=10, name="A") as engine:
        began = time.monotonic()
        slow = [await engine.start(flows.long_sync, 5.0) for _ in range(5)]
        quick = [await engine.start(flows.long_async, 0.1) for _ in range(5)]
        assert [await run.result(timeout=30) for run in quick] == ["a"] * 5
        assert time.monotonic() - began < 4.9
        assert [await run.result(timeout=20) for run in slow] == ["s"] * 5
        assert time.monotonic() - began < 15
        assert max(entry.at for entry in world.ledger.entries("wait_sync", phase="end")) - began < 15
    child = world.worker("W1")
    async with world.client() as client:
        run = await client.start(flows.blocks_loop, 3.0, id="r")
        await world.ledger.until("blocking")
        async with world.engine(name="B"):
            assert await run.result(timeout=30) == "W1"
    assert world.ledger.count("blocking") == 1
    await until(lambda: "blocks the event loop" in child.err, what="the warning")
    line = next(line for line in child.err.splitlines() if "blocks the event loop" in line)
    assert "blocking" in line
    assert "'r'" in line


@everywhere
async def test_case_con_08(world: World) -> None:
    """A thread pool is starved by steps that call back into the loop and wait for a thread of the pool.

    Two threads, ten sync steps that each start a run, wait for it and read its status through the blocking API.
    Source: PostHog/posthog PR#67891.
    """
    async with world.engine(threads=2) as engine:
        runs = [await engine.start(flows.outer, world.url, n) for n in range(10)]
        assert [await run.result(timeout=30) for run in runs] == ["completed"] * 10
