"""Workers that die or freeze at every boundary of a transaction in the engine's own database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure.verify.database import verify
from tests.guard import own_worker
from tests.guard.clients import Place
from tests.guard.own_worker import flow
from tests.process import Child, Spawner
from tests.servers.fixtures import Database
from tests.servers.postgres import USER

PROGRAM = Path(own_worker.__file__)
DIALECTS = {"postgres": "postgresql", "mariadb": "mysql"}
servers = pytest.mark.parametrize("kind", DIALECTS)


@pytest.fixture
def database(kind: str, new_database: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch) -> Database:
    database = new_database(kind)
    place = Place(DIALECTS[kind], port=database.server.port, user=USER, database=database.name)
    monkeypatch.setenv(own_worker.PLACE, json.dumps(place._asdict()))
    own_worker.app.known.clear()
    database.execute("create table ledger (what varchar(100))")
    return database


def worker(spawn: Spawner, database: Database, where: str, how: str) -> Child:
    child = spawn(sys.executable, PROGRAM, database.url, os.environ[own_worker.PLACE], where, how)
    child.expect("ready")
    return child


def check(database: Database, result: int, events: list[str]) -> None:
    assert result == 1
    assert events.count("step_completed") == 1
    assert database.execute("select what from ledger") == [("teapot",)]
    assert verify(database.url).findings == []


@servers
@pytest.mark.parametrize("where", ["before the insert", "after the insert", "after the commit"])
async def test_a_worker_killed_at_any_boundary_leaves_both_or_neither(
    spawn: Spawner, database: Database, where: str
) -> None:
    async with perdure.Engine(database.url, [flow], worker=False) as client:
        dying = worker(spawn, database, where, "SIGKILL")
        run = await client.start(flow, "teapot", id="run-1")
        assert dying.finish().code == -signal.SIGKILL, dying.err
        recorded = [event.type for event in await run.history()].count("step_completed")
        assert recorded == len(database.execute("select what from ledger")) == (where == "after the commit")
    async with perdure.Engine(database.url, [flow], poll="50ms") as engine:
        result = await asyncio.wait_for(engine.get("run-1").result(), 15)
        events = [event.type for event in await engine.get("run-1").history()]
    assert events.count("run_claimed") == 2
    check(database, result, events)


@servers
@pytest.mark.parametrize("where", ["before the insert", "after the insert"])
async def test_a_frozen_owner_that_wakes_up_after_a_take_over_changes_nothing(
    spawn: Spawner, database: Database, where: str
) -> None:
    """After the insert it holds a place in the log: the server puts it out, and nobody waits for longer than that."""
    async with perdure.Engine(database.url, [flow], worker=False) as client:
        frozen = worker(spawn, database, where, "SIGSTOP")
        await client.start(flow, "teapot", id="run-1")
        frozen.expect("there")
    async with perdure.Engine(database.url, [flow], poll="50ms") as engine:
        result = await asyncio.wait_for(engine.get("run-1").result(), 15)
        events = [event.type for event in await engine.get("run-1").history()]
        frozen.send(signal.SIGCONT)
        later = await engine.run(flow, "kettle", id="run-2")  # by whichever of the two
        database.execute("delete from ledger where what = 'kettle'")
        await asyncio.to_thread(frozen_has_noticed, frozen)
    assert later == 2
    check(database, result, events)


def frozen_has_noticed(frozen: Child) -> None:
    deadline = time.monotonic() + 30
    while "run run-1: lease lost" not in frozen.err:
        assert time.monotonic() < deadline, frozen.err
        frozen.listen(0.02)
    frozen.send(signal.SIGTERM)
    frozen.finish()


@servers
async def test_what_is_refused_by_the_log_is_rolled_back(database: Database) -> None:
    """Another event takes the place while the function runs: what an owner meets that does not know it is none."""
    took: list[str] = []

    @perdure.step(name="overtaken", mode="transaction", database=own_worker.app)
    def overtaken() -> None:
        own_worker.app.connection.cursor().execute("insert into ledger values ('stale')")
        if not took:
            took.append("")
            columns = "run_id, seq, type, attempt, at, epoch, commit_id, chain"
            select = "select run_id, 3, type, attempt, at, epoch, 7, chain"
            schema = "perdure." if "postgres" in database.url else ""
            database.execute(f"insert into {schema}event ({columns}) {select} from {schema}event where seq = 2")

    @perdure.workflow(name="fenced")
    async def fenced() -> None:
        await overtaken.aio()

    async with perdure.Engine(database.url, [fenced], lease="60s") as engine:
        await engine.start(fenced, id="run-1")
        worker = engine._worker
        assert worker is not None
        while not took or "run-1" in worker.host.runs:
            await asyncio.sleep(0.01)
    schema = "perdure." if "postgres" in database.url else ""
    assert database.execute(f"select seq from {schema}event order by seq") == [(1,), (2,), (3,)]
    assert database.execute("select what from ledger") == []


@servers
async def test_a_step_on_another_queue_commits_with_its_record_there(database: Database) -> None:
    async with perdure.Engine(
        database.url, [flow], queues=["default", "slow"], routes={"take": "slow"}, poll="50ms"
    ) as engine:
        run = await engine.start(flow, "teapot", id="run-1")
        result = await asyncio.wait_for(run.result(), 15)
        events = [event.type for event in await run.history()]
        elsewhere = [event.type for event in await engine.get("run-1:0").history()]
    assert events.count("step_sent") == elsewhere.count("step_completed") == 1
    check(database, result, events)
