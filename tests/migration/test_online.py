"""A newer process migrates while workers of this release are at work; nobody stops, nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import psycopg
import pymysql
import pytest
from pymysql.constants import CLIENT

import perdure
from perdure.cli import main as cli
from perdure.store.base import StoreOptions, open_store
from tests.process import Spawner

WORKER = """
import asyncio, sys
import perdure

@perdure.step
async def add(n: int) -> int:
    await asyncio.sleep(0.02)
    return n + 1

@perdure.workflow(unversioned=True)
async def count(until: int) -> int:
    n = 0
    while n < until:
        n = await add(n)
    return n

async def main(url):
    async with perdure.Engine(url, [count], concurrency=8, lease=5.0) as engine:
        done = 0
        async def one(name):
            nonlocal done
            assert await engine.run(count, 4, id=name) == 4
            done += 1
            print("ended", done, flush=True)
        limit = asyncio.Semaphore(8)
        async def limited(name):
            async with limit:
                await one(name)
        await asyncio.gather(*(limited(f"run-{n}") for n in range(int(sys.argv[2]))))
        print("all", flush=True)

asyncio.run(main(sys.argv[1]))
"""
NEWER = """
import shutil, sys
from pathlib import Path
import perdure.store
from perdure.cli import main
from perdure.store import migrate

backend, folder = sys.argv[1], Path(sys.argv[3])
shutil.copytree(Path(perdure.store.__file__).parent / "sql", folder / "sql")
number = len([each for each in (folder / "sql" / backend).iterdir() if each.name[:4].isdigit()]) + 1
(folder / "sql" / backend / f"{number:04d}_future_pre.sql").write_text(sys.argv[4])
migrate.FOLDER = folder / "sql"
print("ready", flush=True)
sys.exit(main.run(["migrate", "--db", sys.argv[2]]))
"""
NEXT = {
    "sqlite": """-- phase: pre
        alter table run add column future text;
        alter table event_log add column future integer not null default 0;
        alter table inbox add column future text;
        alter table worker add column future text;
        create index run_future on run (workflow, future);
        create table future (id integer primary key) strict;""",
    "postgres": """-- phase: pre
        alter table perdure.run add column future text;
        alter table perdure.event add column future bigint not null default 0;
        alter table perdure.inbox add column future text;
        alter table perdure.worker add column future text;
        create index run_future on perdure.run (workflow, future);
        create table perdure.future (id bigint primary key);""",
    "mysql": """-- phase: pre
        alter table run add column if not exists future text;
        alter table event add column if not exists future bigint not null default 0;
        alter table inbox add column if not exists future text;
        alter table worker add column if not exists future text;
        create table if not exists future (id bigint primary key);""",
}
KINDS = {"sqlite": "sqlite", "postgres": "postgres", "mariadb": "mysql"}
RUNS = 120


def test_workers_of_this_release_go_on_while_two_newer_processes_migrate(
    kind: str, url: str, spawn: Spawner, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    backend = KINDS[kind]
    worker = spawn.python(WORKER, url, str(RUNS), env=env)
    worker.expect("ended 5", within=30)
    newer = [spawn.python(NEWER, backend, url, str(tmp_path / f"newer-{n}"), NEXT[backend], env=env) for n in range(2)]
    for one in newer:
        finished = one.finish(within=40)
        assert finished.code == 0, finished.err
        assert "_future_pre" in finished.out
    assert "all" not in worker.out.split()
    worker.expect("all", within=60)
    finished = worker.finish()
    assert (finished.code, finished.err) == (0, "")
    asyncio.run(late(url))
    store = open_store(url, StoreOptions())
    store.open()
    for n in range(RUNS):
        types = [event.type for event in store.load(f"run-{n}")]
        assert (types.count("run_claimed"), types.count("step_completed"), types[-1]) == (1, 4, "run_completed")
    assert next(fact.value for fact in store.stats().facts if fact.name == "schema").endswith("_future_pre")
    store.close()


@perdure.step
async def late_step() -> str:
    return "late"


@perdure.workflow(unversioned=True)
async def late_workflow() -> str:
    return await late_step()


async def late(url: str) -> None:
    """Join with this release after the newer one has migrated."""
    async with perdure.Engine(url, [late_workflow]) as engine:
        assert await engine.run(late_workflow, id="late") == "late"
        await engine.get("run-0").result()


def run_script(url: str, script: str) -> None:
    """Run SQL as its owner would, with the database's own client."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        connection = apsw.Connection(parts.path.removeprefix("/"))
        connection.execute(script)
        connection.close()
    elif parts.scheme == "mysql":
        client = pymysql.connect(
            host=parts.hostname, port=parts.port or 0, user=parts.username, database=parts.path[1:],
            client_flag=CLIENT.MULTI_STATEMENTS,
        )  # fmt: skip
        with client, client.cursor() as cursor:
            cursor.execute(script)
            while cursor.nextset():
                pass
            client.commit()
    else:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as server:
            server.execute(script.encode())


def test_the_printed_statements_are_those_that_would_run_and_none_is_run(
    kind: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "postgres":
        url += "?schema=elsewhere"
    assert cli.run(["migrate", "--print", "--db", url]) == 0
    script = capsys.readouterr().out
    assert cli.run(["migrate", "--print", "--db", url]) == 0
    assert capsys.readouterr().out == script  # nothing has changed
    assert "0002" not in script.partition("create table")[0]
    if kind == "postgres":
        assert "perdure." not in script.replace("'perdure: ", "")
    run_script(url, script)
    store = open_store(url, StoreOptions(migrate=False))
    store.open()
    store.close()
    assert cli.run(["migrate", "--print", "--db", url]) == 0
    assert capsys.readouterr().out == ""
    assert cli.run(["migrate", "--print", "--after", "1", "--db", url]) == 0
    assert "create table" in capsys.readouterr().out
