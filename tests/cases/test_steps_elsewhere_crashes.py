"""Steps that are executed on other workers than their runs: crashes of either, and what is left of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

import perdure
from perdure import Run, RunNotFound, Status
from perdure.verify.database import verify
from tests.cases import elsewhere
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import flag
from tests.process import Child

CONCURRENCY = 8
STORES = ["sqlite", "postgres", "mariadb"]
MODULES = ("tests.cases.elsewhere",)


def worker(world: World, name: str, queue: str, **options: Any) -> Child:
    chosen = {"routes": elsewhere.ROUTES, "concurrency": CONCURRENCY, "max_deaths": 30, **options}
    return world.worker(name, modules=MODULES, queues=[queue], **chosen)


def moments(first: str, *others: str) -> list[Any]:
    """Give moments of which the first is tried always."""
    return [first, *(pytest.param(other, marks=pytest.mark.nightly) for other in others)]


async def until(run: Run[Any], wanted: Status, wait_s: float = 20) -> None:
    async with asyncio.timeout(wait_s):
        while True:
            try:
                if await run.status() is wanted:
                    return
            except RunNotFound:
                pass
            await asyncio.sleep(0.02)


async def storm(world: World, runs: int, kills: int) -> None:
    luck = random.Random(runs * kills)
    queues = {"D1": "default", "D2": "default", "S1": "slow", "S2": "slow"}
    children = {name: worker(world, name, queue) for name, queue in queues.items()}
    async with world.client(elsewhere) as engine:
        started: list[Run[list[int]]] = []
        for number in range(kills):
            for n in range(1 + runs * number // kills, 1 + runs * (number + 1) // kills):
                started.append(await engine.start(elsewhere.produce, n, id=f"r{n}"))  # noqa: PERF401 - one by one
            await asyncio.sleep(luck.uniform(0.01, 0.25))
            name = luck.choice(list(queues))
            children[name].destroy()
            children[name] = await asyncio.to_thread(worker, world, name, queues[name])
        async with asyncio.timeout(120):
            for n, run in enumerate(started, start=1):
                assert await run.result() == [2 * n, 4 * n, 2 * n + 1, n]
        infos = [info async for info in engine.list()]
        for run in started:
            done = [event.op for event in await run.history() if event.type == "step_completed"]
            assert len(done) == len(set(done)) == 4
    assert {info.status for info in infos} == {Status.COMPLETED}
    assert len(infos) == runs * 4
    for child in children.values():
        child.destroy()
    counts = Counter((entry.run, entry.step, entry.value) for entry in world.ledger.entries() if entry.run)
    assert max(counts.values()) <= 1 + kills
    assert sum(counts.values()) - 4 * runs <= kills * CONCURRENCY * 2
    assert verify(world.url).sound, str(verify(world.url))


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
async def test_workers_on_both_sides_die(world: World) -> None:
    await storm(world, 24, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("world", STORES, indirect=True)
async def test_workers_on_both_sides_die_all_the_time(world: World) -> None:
    await storm(world, 300, 25)


@pytest.mark.nightly
@pytest.mark.parametrize("world", STORES, indirect=True)
async def test_each_queue_has_a_worker_of_its_own_and_the_caller_leaves_memory_meanwhile(world: World) -> None:
    worker(world, "D", "default", evict_after="0.1s")
    worker(world, "S", "slow")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        await until(run, Status.WAITING)
        info = await run.info()
        assert info.wake_at is not None
        assert (info.wake_at - info.updated_at).total_seconds() > 300
        flag("a").touch()
        assert await run.result(timeout=5) == "a"
        assert {entry.worker for entry in world.ledger.entries("media.held")} == {"S"}


@pytest.mark.nightly
@pytest.mark.parametrize("world", STORES, indirect=True)
async def test_the_callers_worker_dies_while_it_waits(world: World) -> None:
    first = worker(world, "D1", "default")
    worker(world, "S", "slow")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        await until(engine.get("r:0"), Status.RUNNING)
        first.destroy()
        flag("a").touch()
        await until(engine.get("r:0"), Status.COMPLETED)
        worker(world, "D2", "default")
        assert await run.result(timeout=20) == "a"
    assert world.ledger.count("media.held") == 1
    assert verify(world.url).sound


@pytest.mark.parametrize("moment", moments("after step_sent", "before step_sent", "after run_started media.held"))
async def test_the_callers_worker_dies_as_it_sends(world: World, moment: str) -> None:
    worker(world, "S", "slow")
    flag("a").touch()
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        worker(world, "D1", "default", fault=f"kill {moment}", wait=False)
        await asyncio.sleep(0.5)
        worker(world, "D2", "default")
        assert await run.result(timeout=20) == "a"
    assert world.ledger.count("media.held") == 1
    assert verify(world.url).sound


@pytest.mark.parametrize("moment", moments("after step_returned", "before step_returned", "before step_completed"))
async def test_the_callers_worker_dies_as_it_hears_of_the_end(world: World, moment: str) -> None:
    worker(world, "S", "slow")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        first = worker(world, "D1", "default", fault=f"kill {moment}", evict_after="0.1s")
        await until(run, Status.WAITING)
        flag("a").touch()
        first.finish()
        worker(world, "D2", "default")
        assert await run.result(timeout=20) == "a"
    assert world.ledger.count("media.held") == 1
    assert verify(world.url).sound


@pytest.mark.parametrize("moment", moments("before step_cancelled", "after step_cancelled"))
async def test_the_callers_worker_dies_as_it_gives_a_step_up(world: World, moment: str) -> None:
    worker(world, "S", "slow")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.race, "a", id="r")
        worker(world, "D1", "default", fault=f"kill {moment}").finish()
        worker(world, "D2", "default")
        assert await run.result(timeout=20) == "a is late: 1"
        sent = next(event for event in await run.history() if event.type == "step_sent")
        await until(engine.get(sent.detail["run"]), Status.CANCELLED)
        assert (await engine.check("r", processes=0)).is_safe
        kinds = [event.type for event in await run.history()]
        assert kinds.count("step_cancelled") == 1
    assert verify(world.url).sound


@everywhere
async def test_the_history_of_the_step_is_purged_before_its_caller_looks(world: World) -> None:
    first = worker(world, "D1", "default")
    worker(world, "S", "slow")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        there = engine.get("r:0")
        await until(there, Status.RUNNING)
        first.destroy()
        flag("a").touch()
        await until(there, Status.COMPLETED)
        await engine.purge("r:0", reason="too early")
        worker(world, "D2", "default")
        with pytest.raises(perdure.RunFailed) as failed:
            await run.result(timeout=20)
        assert isinstance(failed.value.__cause__, RunNotFound)
        assert "purged" in str(failed.value.__cause__)
    assert verify(world.url).sound


async def test_routes_that_are_gone_concern_what_is_asked_for_from_then_on(world: World) -> None:
    first = worker(world, "D1", "default")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.produce, 3, id="r")
        await until(engine.get("r:0"), Status.PENDING)
        first.destroy()
        worker(world, "D2", "default", routes=None)
        worker(world, "S", "slow", routes=None)
        assert await run.result(timeout=20) == [6, 12, 7, 3]
        assert [info.id async for info in engine.list(queue="slow")] == ["r:0"]
    assert {entry.worker for entry in world.ledger.entries(run="r")} == {"D2", "S"}
    assert verify(world.url).sound


@pytest.mark.nightly
@pytest.mark.parametrize("world", STORES, indirect=True)
async def test_a_run_that_was_parked_between_tells_its_caller_in_the_end(world: World) -> None:
    worker(world, "D", "default", evict_after="0.1s")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.hold, "a", id="r")
        for n in range(3):  # each dies of it
            victim = worker(world, f"S{n}", "slow", fault="kill before step_completed", max_deaths=3)
            flag("a").touch()
            victim.finish()
        last = worker(world, "S", "slow", max_deaths=3)
        await until(engine.get("r:0"), Status.PARKED)
        await until(run, Status.WAITING)
        await engine.retry("r:0")
        assert await run.result(timeout=20) == "a"
        last.destroy()
    assert verify(world.url).sound


async def test_an_at_most_once_step_whose_worker_dies_is_known_to_be_interrupted(world: World) -> None:
    worker(world, "D", "default")
    async with world.client(elsewhere) as engine:
        run = await engine.start(elsewhere.risk, "a", id="r")
        worker(world, "S1", "slow", fault="kill before step_completed", wait=False).finish()
        worker(world, "S2", "slow")
        with pytest.raises(perdure.RunFailed) as failed:
            await run.result(timeout=20)
        assert isinstance(failed.value.__cause__, perdure.StepInterrupted)
    assert world.ledger.count("media.once") == 1
    assert verify(world.url).sound
