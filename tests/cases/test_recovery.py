"""Real complaints about recovery: a dead or frozen worker's runs go on elsewhere, once."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Engine, Queue, Run, RunParked, Status
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import until
from tests.process import Child

LEASE = 1.0
LIMITS = pytest.mark.parametrize("limit", ["queue", pytest.param("worker", marks=pytest.mark.nightly)])
"""Whose limit of one run it is."""


def one_slot(world: World, limit: str) -> tuple[Engine, dict[str, Any]]:
    """Give a client, and the options of workers, of which one run at a time is executed: by all, or by each."""
    if limit == "queue":
        return world.client(queues=[Queue("one", concurrency=1)]), {"queues": ["one"]}
    return world.client(queues=["one"]), {"queues": ["one"], "concurrency": 1}


@everywhere
async def test_case_rec_03(world: World) -> None:
    """Rolling deploy with the same worker name strands work between the old and the new process.

    Old and new worker share the name; the old one is told to stop while the run sleeps.
    Source: dbos-inc/dbos-transact-py#804.
    """
    async with world.client() as client:
        run = await client.start(flows.nap, 2.0)
        old = world.worker("local")
        await world.ledger.until("first")
        world.worker("local")
        old.send(signal.SIGTERM)
        assert old.finish().code == 0
        assert await run.result(timeout=30) == "rested"
    assert world.ledger.count("first") == world.ledger.count("last") == 1


@everywhere
async def test_case_rec_04(world: World) -> None:
    """A restarted process under its old name is taken for its dead self, and its orphans are left alone.

    Killed with three runs, started again at once under the same name, with new work to do.
    Source: oban-bg/oban#862.
    """
    async with world.client() as client:
        runs = [await client.start(flows.long_async, 0.5, id=f"r{n}") for n in range(3)]
        dead = world.worker("host-a")
        await world.ledger.until("wait_async", 3)
        dead.destroy()
        killed = time.monotonic()
        world.worker("host-a")
        fresh = await client.start(flows.two_steps)
        assert await fresh.result(timeout=30) == ["one", "two"]
        await world.ledger.until("wait_async", 6)
        assert world.ledger.entries("wait_async")[-1].at - killed < 10 * LEASE
        assert [await run.result(timeout=30) for run in runs] == ["a"] * 3


@everywhere
@LIMITS
async def test_case_rec_05(world: World, limit: str) -> None:
    """A recovered run halts between two steps, and what waits behind it stands still.

    Killed right after the second of three steps was recorded; five more runs wait for the one slot.
    Source: dbos-inc/dbos-transact-py#805.
    """
    client, options = one_slot(world, limit)
    async with client:
        run = await client.start(flows.three_steps, id="r", queue="one", priority=1)
        others = [await client.start(flows.two_steps, queue="one") for _ in range(5)]
        world.worker("W1", fault="kill after step_completed second", **options).finish()
        assert limit == "worker" or (await client.queue("one").info()).slots == 1
        world.worker("W2", **options)
        assert await run.result(timeout=30) == ["one", "two", "three"]
        assert [await other.result(timeout=30) for other in others] == [["one", "two"]] * 5
        assert (await client.queue("one").info()).slots == 0
    assert (
        world.ledger.count("first", "r") == world.ledger.count("second", "r") == world.ledger.count("third", "r") == 1
    )


@everywhere
async def test_case_rec_07(world: World) -> None:
    """A killed worker ignores the retry budget: the job vanishes although it has attempts left.

    The first attempt kills its worker; a second worker makes the second attempt; the run is listed all along.
    Source: rq/rq#2015, rq/rq#1461.
    """
    async with world.client() as client:
        run = await client.start(flows.deadly, 1)
        world.worker("W1").finish()
        seen = [info.id async for info in client.list()]
        assert seen == [run.id]
        world.worker("W2")
        assert await run.result(timeout=30) == "survived"
    assert [entry.worker for entry in world.ledger.entries("suicide")] == ["W1", "W2"]


@everywhere
async def test_case_rec_08(world: World) -> None:
    """Several reapers handle the same dead run, and use up its attempts.

    Five workers look for dead owners at the same moment; one of them takes the run over.
    Source: apache/airflow#32289, apache/airflow#51969, apache/airflow#25843.
    """
    async with world.client() as client:
        run = await client.start(flows.tried, id="r")
        dead = world.worker("W1")
        await world.ledger.until("named_thrice")
        engines = [world.engine(name=f"reaper-{n}") for n in range(5)]
        await asyncio.gather(*(engine.open() for engine in engines))
        dead.destroy()
        assert await run.result(timeout=30) == "test"
        await asyncio.gather(*(engine.close() for engine in engines))
    assert world.types("r").count("run_claimed") == 2
    assert world.ledger.count("named_thrice") == 2
    assert "step_attempt_failed" not in world.types("r")


@everywhere
@pytest.mark.parametrize("flow", ["long_async", "long_sync"])
async def test_case_rec_11(world: World, flow: str) -> None:
    """A step longer than the rescue time is handed to a second worker although its worker is well.

    A step of several leases, async and on a thread, with three workers.
    Source: oban-bg/oban#1141, hexpm/hexpm PR#1825, Koed00/django-q#307, riverqueue/river#682.
    """
    async with world.engine(name="A") as first, world.engine(name="B"), world.engine(name="C"):
        run: Run[Any] = await first.start(flow, seconds=3.5 * LEASE)
        assert await run.result(timeout=30) in ("a", "s")
    assert world.ledger.count() == 1


FREEZES = {
    "result": ("named", "step_completed who"),
    "timer": ("everything", "timer_fired"),
    "checkpoint": ("everything", "checkpoint_reached"),
    "value": ("everything", "value_published"),
    "final status": ("everything", "run_completed"),
}


def noticed(said: str) -> bool:
    """Whether a worker has noticed that it is not the owner any more: by its write, or by its heartbeat."""
    return "lease lost" in said or "declared dead" in said


@everywhere
async def test_case_rec_12(world: World) -> None:
    """A checkpoint written after the lease was lost overwrites that of the new owner.

    The first worker is frozen at the very write (of a result, a timer, a checkpoint, a value, the final status),
    another one ends the run, the first wakes up. Source: tensorzero/durable PR#68, blehnen/DotNetWorkQueue PR#302.
    """
    flag = world.folder / "flag-go"
    flag.touch()  # W1 answers at once; what is frozen is the write of its answer
    frozen: dict[str, tuple[Child, Run[Any]]] = {}
    async with world.client() as client:
        for what, (flow, event) in FREEZES.items():
            # Each has a queue for itself: none may take over what another one was frozen with.
            child = world.worker("W1", fault=f"stop before {event}", concurrency=1, queues=[what])
            run: Run[Any] = await client.start(flow, id=what, queue=what)
            await world.ledger.until("fault", len(frozen) + 1, phase="strike")
            frozen[what] = (child, run)
        async with world.engine(name="W2", queues=list(FREEZES)) as engine:
            for what, (_, run) in frozen.items():
                await engine.get(run.id).result(timeout=30)
                assert world.rows("select status from run where id = ?", run.id) == [("completed",)], what
            logs = {what: world.types(what) for what in frozen}
            for child, _ in frozen.values():
                child.send(signal.SIGCONT)
            for what, (child, _) in frozen.items():
                await until(lambda child=child: noticed(child.err), what=f"W1 says so: {what}")  # type: ignore[misc]
                child.send(signal.SIGTERM)
                assert child.finish().code == 0
            assert await engine.get("result").result() == ["test", "done"]
    assert {what: world.types(what) for what in frozen} == logs
    second = world.ledger.counts("second")
    assert second == dict.fromkeys(FREEZES, 1)


@everywhere
async def test_case_rec_14(world: World) -> None:
    """A poison pill that kills its worker is redelivered for ever and takes the workers down one by one.

    A step kills its process each time; a supervisor starts workers anew; twenty good runs wait beside it.
    Source: Bogdanp/dramatiq PR#383 and #213.
    """
    async with world.client() as client:
        bad = await client.start(flows.deadly, 99, id="bad")
        good = [await client.start(flows.trivial, n) for n in range(20)]
        children: list[Child] = []
        while await bad.status() != Status.PARKED:
            assert len(children) < 4
            child = world.worker(f"W{len(children)}", max_deaths=3)
            children.append(child)
            await until_gone(child, lambda: status_of(world, "bad") == "parked")
        with pytest.raises(RunParked, match="3 workers died of it"):
            await bad.result(timeout=30)
        assert [await run.result(timeout=30) for run in good] == list(range(20))
    assert world.ledger.count("suicide") == 3


def status_of(world: World, run_id: str) -> str:
    return str(world.rows("select status from run where id = ?", run_id)[0][0])


async def until_gone(child: Child, or_else: Callable[[], bool]) -> None:
    await until(lambda: child.process.poll() is not None or or_else(), 12, "the worker dies, or the run is parked")


@everywhere
@LIMITS
async def test_case_rec_22(world: World, limit: str) -> None:
    """After a power-cut of the whole machine the run in flight stays running and holds the only slot.

    Every process is killed during a long step; all are started again; another run follows in the one slot.
    Source: PrefectHQ/prefect#16746, oqtopus-team/qdash#1351.
    """
    client, options = one_slot(world, limit)
    async with client:
        killed = [world.worker(name, **options) for name in ("W1", "W2")]
        run = await client.start(flows.long_async, 2.0, id="r1", queue="one")
        await world.ledger.until("wait_async")
    for child in killed:
        child.destroy()
    world.worker("W1", **options)
    async with one_slot(world, limit)[0] as client:
        after = await client.start(flows.two_steps, id="r2", queue="one")
        assert await client.get("r1").result(timeout=30) == "a"
        assert await after.result(timeout=30) == ["one", "two"]
        assert (await client.queue("one").info()).slots == 0
    assert world.ledger.count("wait_async", run.id) == 2
    if limit == "queue":
        assert world.ledger.entries("first", "r2")[0].at > world.ledger.entries("wait_async", "r1", "end")[-1].at
    assert world.rows("select count(*) from run where owner is not null") == [(0,)]
