"""Real complaints about operation and use: noise in the log, listings at scale."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import closing

import apsw
import pytest

import perdure
from perdure import Retry, RunFailed, step, workflow
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import note


@step(retry=Retry(attempts=3, initial="1ms"))
async def fails_thrice() -> None:
    note()
    raise ValueError("a user's error")


@workflow
async def failing() -> None:
    await fails_thrice()


@everywhere
@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=[pytest.mark.nightly])])
async def test_case_ops_07(world: World, caplog: pytest.LogCaptureFixture, times: int) -> None:
    """Expected events are logged as errors, with a trace each.

    Duplicate starts, workers that race for the same runs, a step that fails three times: nothing above a warning for
    the first two, at most one line for a final failure, no trace. A lost lease: one line per run (REC-12 reads it).
    Source: dbos-inc/dbos-transact-java#293.
    """
    caplog.set_level(logging.DEBUG, "perdure")
    engines = [world.engine(name=f"W{n}", concurrency=3, lease="10s") for n in range(4)]
    await asyncio.gather(*(engine.open() for engine in engines))
    async with world.client() as client:
        await asyncio.gather(*(client.start(flows.trivial, 1, id="same") for _ in range(times)))
        await asyncio.gather(*(client.start(flows.trivial, n, id=f"r{n}") for n in range(times)))
        for n in range(times):
            await client.get(f"r{n}").result(timeout=30)
    await asyncio.gather(*(engine.close() for engine in engines))
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    caplog.clear()
    async with world.engine([failing]) as engine:
        run = await engine.start(failing)
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
    loud = [record for record in caplog.records if record.levelno > logging.INFO]
    assert len(loud) <= 1
    assert not any(record.exc_info for record in caplog.records)


@everywhere
async def test_a_lost_lease_is_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """OPS-07, lost leases: one line for each run that was lost, without a trace."""
    async with world.engine() as engine:
        runs = [await engine.start(flows.long_async, 30.0) for _ in range(10)]
        assert engine._worker is not None
        old = engine._worker.id
        engine._store.heartbeat(old, 0)
        async with asyncio.timeout(40):
            while engine._worker.id == old:
                await asyncio.sleep(0.01)
        for run in runs:
            await run.cancel()
    lost = [record for record in caplog.records if "lease lost" in record.getMessage()]
    told = [str(record.args[0]) for record in lost if isinstance(record.args, tuple)]
    assert sorted(told) == sorted(run.id for run in runs)
    assert not any(record.exc_info for record in caplog.records)


def fill(world: World, count: int) -> None:
    """Insert finished runs: nine tenths of one workflow, one in a hundred failed, one in a thousand tagged."""
    columns = [name for _, name, *_ in world.rows("pragma table_info(run)")]
    names = ", ".join(columns)
    row = dict(zip(columns, world.rows(f"select {names} from run where id = 'seed'")[0], strict=True))
    marks = ", ".join(f":{name}" for name in row)

    def rows() -> object:
        for n in range(count):
            status = "failed" if n % 100 == 0 else "completed"
            yield row | {
                "no": row["no"] + 1 + n, "id": f"bulk-{n:07}", "status": status,
                "workflow": "trivial" if n % 10 else "two_steps",
                "created_at": row["created_at"] - count + n,
                "tags": '{"batch":"7"}' if n % 1000 == 0 else None,
            }  # fmt: skip

    with closing(apsw.Connection(str(world.file))) as connection:
        connection.execute("begin")
        connection.executemany(f"insert into run ({names}) values ({marks})", rows())  # type: ignore[arg-type]
        tagged = "select 'batch', '7', id from run where tags is not null"
        connection.execute(f"insert into tag (key, value, run_id) {tagged}")
        connection.execute("commit")


async def listed(client: perdure.Engine, **conditions: object) -> list[perdure.RunInfo]:
    """Give a page of a listing; it must not take two seconds."""
    began = time.monotonic()
    found = [info async for info in client.list(limit=50, **conditions)]  # type: ignore[arg-type]
    assert time.monotonic() - began < 2, conditions
    return found


@pytest.mark.parametrize(
    "count", [100_000, pytest.param(1_000_000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
@pytest.mark.sqlite_only
async def test_case_ux_01(world: World, count: int) -> None:
    """A list takes a minute at scale. (Acting on many at once and the text filter come with the user interface.)

    Very many runs, nine tenths of one workflow, one in a hundred failed: first page, failed ones, one workflow, a
    tag, a page far back, a time, counts: each within two seconds. Source: PrefectHQ/prefect#8549,
    PrefectHQ/prefect#18231.
    """
    async with world.engine() as engine:
        await engine.run(flows.trivial, 1, id="seed")
    fill(world, count)
    async with world.client() as client:
        assert len(await listed(client)) == 50
        failed = await listed(client, status="failed")
        assert {info.status for info in failed} == {"failed"}
        assert len(failed) == 50
        assert {info.workflow for info in await listed(client, workflow="two_steps")} == {"two_steps"}
        assert len(await listed(client, tag={"batch": "7"})) == 50
        assert len(await listed(client, status=["failed", "running"], workflow="two_steps")) == 50
        far = f"bulk-{count - 5000:07}"
        back = await listed(client, cursor=far)
        assert back[0].id == f"bulk-{count - 5001:07}"
        assert len(await listed(client, until=back[0].created_at)) == 50
        began = time.monotonic()
        counts = client._store.stats().runs
        assert time.monotonic() - began < 2
        assert counts["failed"] == count // 100
