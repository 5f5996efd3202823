"""Real complaints about stopping: bounded, nothing kept, nothing lost. (At command level: tests/cli.)"""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.cases import flows
from tests.cases.conftest import World
from tests.cases.ledger import until


async def test_case_shu_02(world: World) -> None:
    """Drain without a bound: one job that ignores its cancellation keeps the process up past the limit.

    An async step that swallows every cancellation and a thread that cannot be stopped; grace 1 s; SIGTERM. The
    process is gone soon after the grace; both runs begin again elsewhere at once. Source: riverqueue/river#78.
    """
    async with world.client() as client:
        runs = [await client.start(flow) for flow in (flows.stubborn_async, flows.stubborn_sync)]
        child = world.worker("W1", lease="60s", grace="1s")
        await world.ledger.until("stubborn")
        await world.ledger.until("stubborn_thread")
        async with world.engine(name="W2"):
            began = time.monotonic()
            child.send(signal.SIGTERM)
            assert child.finish().code == 0
            assert 1.0 <= time.monotonic() - began < 10
            assert [await run.result(timeout=30) for run in runs] == ["test", "test"]


async def test_case_shu_03(world: World) -> None:
    """An interrupted run is not given back: on SIGTERM nothing is written, and its place stays taken.

    A long lease, a short grace, a long step, another worker idle: the run begins there well before the lease ends,
    and the shutdown has used up no attempt. Source: PrefectHQ/prefect PR#23016, PrefectHQ/prefect#16746.
    """
    async with world.client() as client:
        run = await client.start(flows.named, id="r")
        child = world.worker("W1", lease="60s", grace="0.3s")
        await world.ledger.until("who")
        async with world.engine(name="W2", lease="60s"):
            began = time.monotonic()
            child.send(signal.SIGTERM)
            assert await run.result(timeout=30) == ["test", "done"]
            assert time.monotonic() - began < 5
        assert child.finish().code == 0
    assert [entry.attempt for entry in world.ledger.entries("who")] == [1, 1]
    released = "select count(*) from event where type = 'run_released'"
    assert world.rows(released) == [(1,)]


async def begun(world: World, child_name: str) -> list[str]:
    """Enqueue a dozen, let one worker end three of them one by one, give the runs begun so far."""
    async with world.client() as client:
        for n in range(12):
            await client.start(flows.long_async, 0.2, id=f"{child_name}{n}")
    return [f"{child_name}{n}" for n in range(12)]


@pytest.mark.sqlite_only
async def test_case_shu_05(world: World) -> None:
    """Prefetched work that has not begun is lost with the process that holds it.

    A dozen runs for a worker that executes one at a time; SIGTERM after three, and the same with SIGKILL. Another
    worker ends all of them; each step ran once, only the one in flight at the kill twice. Source: celery/kombu#1836.
    """
    for number, limit in ((signal.SIGTERM, 1), (signal.SIGKILL, 2)):
        name = number.name
        ids = await begun(world, name)
        child = world.worker(name, concurrency=1)
        query = f"select count(*) from run where status = 'completed' and id like '{name}%'"
        await until(lambda query=query: world.rows(query)[0][0] >= 3, what="three have ended")  # type: ignore[misc]
        child.send(number)
        child.finish()
        done = time.monotonic()
        async with world.engine(name="W2", concurrency=4) as engine:
            assert await asyncio.gather(*(engine.get(run_id).result(timeout=30) for run_id in ids)) == ["a"] * 12
        assert time.monotonic() - done < 6
        counts = [world.ledger.count("wait_async", run_id) for run_id in ids]
        assert max(counts) <= limit
        assert sum(counts) <= 12 + limit - 1
