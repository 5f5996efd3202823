"""Real complaints about removing what is old, as far as it is asked for: `purge`. (By itself: with retention.)"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Queue, Rate, RunFailed, Start
from perdure.verify.database import verify
from tests.cases import elsewhere, flows
from tests.cases.backends import everywhere
from tests.cases.conftest import FLOWS, World
from tests.cases.ledger import flag, until
from tests.process import Spawner
from tests.servers.postgres import Postgres

SOURCE = {"PYTHONPATH": str(Path(perdure.__file__).parents[1])}
LIMITED = Queue("q", concurrency=5, concurrency_per_key=2, rate=Rate(1000, per="100ms"), fair=True)


def tables(world: World) -> Iterator[str]:
    """Name every table of the store."""
    if world.database is None:
        query = "select name from sqlite_schema where type = 'table' and name not like 'sqlite%'"
        yield from (str(name) for (name,) in world.rows(query))
        return
    schema = "'perdure'" if isinstance(world.database.server, Postgres) else "database()"
    query = "select table_name from information_schema.tables where table_type = 'BASE TABLE' and table_schema = "
    yield from (str(name) for (name,) in world.database.execute(query + schema))


def sizes(world: World) -> dict[str, int]:
    """Count the rows of every table."""
    return {name: world.rows(f"select count(*) from {name}")[0][0] for name in tables(world)}


def serving(world: World, **options: Any) -> perdure.Engine:
    queues = ["default", LIMITED, "slow"]
    return world.engine([flows, elsewhere], queues=queues, routes=elsewhere.ROUTES, evict_after="50ms", **options)


async def every_kind(client: perdure.Engine, times: int) -> None:
    """Start runs that complete, try again, fail, are cancelled, wait, and have steps executed elsewhere."""
    kinds: list[Any] = [flows.trivial, flows.wait_then_try_twice, flows.wait_then_fail, flows.everything]
    starts = [
        Start(kind, queue="q", tags={"kind": kind.name, "n": str(n)}, partition_key=f"p{n % 3}", deduplication_key=key)
        for n in range(times)
        for kind in kinds
        for key in (f"{kind.name}{n}", None)
    ]
    runs = await client.start_many([*starts, *(Start(elsewhere.produce, n) for n in range(times))])
    asked = [await client.start(flows.retries_late, priority=n % 2) for n in range(times)]
    for run in asked:
        await run.cancel(reason="not wanted")
    for run in (*runs, *asked):
        try:
            await run.result(timeout=60)
        except (RunFailed, perdure.RunCancelled):
            continue


@everywhere
@pytest.mark.parametrize("times", [1, pytest.param(90, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])])
async def test_case_ops_01(world: World, times: int) -> None:
    """What is removed leaves something behind, so that one table grows without end.

    Runs of every kind, a dead worker, workers that have left; all runs are purged. Every table is as long as it was,
    but for the row that keeps the id of each run taken. Source: PrefectHQ/prefect#16906.
    """
    dead = world.worker("W1", modules=[FLOWS, elsewhere.__name__])
    async with serving(world, worker=False) as client:
        await client.start(flows.named, id="orphan")
        await world.ledger.until("who")
        before = sizes(world)
        dead.destroy()
        for _ in range(2):  # one that leaves, and one that follows it
            async with serving(world) as worker:
                await every_kind(worker, times)
                await worker.get("orphan").result(timeout=30)
        full = sizes(world)
        assert all(full[name] > before[name] for name in ("run", "tag", "deduplication", "queue_start"))
        gone = [info.id async for info in client.list(limit=10_000)]
        assert len(gone) > 24 * times
        for run_id in gone:
            await client.purge(run_id)
        async with serving(world) as worker:
            await worker.run(flows.trivial, 1, queue="q", id="after")  # what a rate remembers goes with the next claim
            await worker.purge("after")
            await until(lambda: sizes(world)["worker"] == 1, what="workers that are gone are forgotten")
        after = sizes(world)
    assert after.pop("queue_start") == 1
    assert after.pop("request") == len(gone) + 1
    left = {name: rows - before[name] for name, rows in after.items() if rows != before[name]}
    assert set(left) < {"run", "event", "event_log"}  # those of the run that the dead worker had
    assert not any(after[name] for name in left)
    assert verify(world.url).findings == []


@everywhere
@pytest.mark.parametrize("runs", [20, pytest.param(5000, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
async def test_case_ops_05(world: World, spawn: Spawner, runs: int) -> None:
    """Two that clean up collide: the slower one fails on what is gone, and stops.

    Four workers end new runs while two commands and two clients purge the same runs, all let go at one moment: each
    succeeds, exactly the runs that were asked for are gone, and who purged one is told once.
    Source: PrefectHQ/prefect#19604.
    """
    workers = [world.engine(name=f"W{n}", lease="10s") for n in range(4)]
    await asyncio.gather(*(worker.open() for worker in workers))
    first = workers[0]
    old = await first.start_many(Start(flows.trivial, n, id=f"old-{n}") for n in range(runs))
    for run in old:
        await run.result(timeout=60)
    ids = [run.id for run in old]
    program = f"import sys, time, pathlib; from perdure.cli import main\nwhile not pathlib.Path({str(flag('go'))!r})"
    program += ".exists(): time.sleep(0.005)\nsys.exit(main.run(sys.argv[1:]))"
    commands = [
        spawn(sys.executable, "-c", program, "purge", *ids, "--db", world.url, "--actor", f"cleaner-{n}", env=SOURCE)
        for n in range(2)
    ]

    async def clean(client: perdure.Engine) -> None:
        for run_id in reversed(ids):
            await client.purge(run_id)

    flag("go").touch()
    new, *_ = await asyncio.gather(
        first.start_many(Start(flows.trivial, n, id=f"new-{n}") for n in range(runs)),
        *(clean(worker) for worker in workers[:2]),
    )
    assert [await run.result(timeout=60) for run in new] == list(range(runs))
    for command in commands:
        done = await asyncio.to_thread(command.finish, 600)
        assert (done.code, done.err) == (0, "")
    assert sorted([info.id async for info in first.list(limit=10_000)]) == sorted(run.id for run in new)
    assert world.rows("select count(*) from request") == [(runs,)]
    with pytest.raises(perdure.RunNotFound):
        await first.purge("nobody")
    await asyncio.gather(*(worker.close() for worker in workers))
    assert verify(world.url).findings == []
