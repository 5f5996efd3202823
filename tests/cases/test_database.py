"""Real complaints about the database: SQLite's own, and those of all about the schema and keys."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import until
from tests.process import Spawner
from tests.servers.fixtures import Database
from tests.servers.postgres import Postgres


async def read_on(world: World, stop: asyncio.Event) -> int:
    """List runs and copy the database again and again, as a user interface and a backup would."""
    reads = 0
    async with world.client() as client:
        while not stop.is_set():
            reads += len([info async for info in client.list(limit=200)])
            await asyncio.to_thread(copy, world)
            await asyncio.sleep(0.05)
    return reads


def copy(world: World) -> None:
    place = f"file:{world.file}?mode=ro"
    with closing(sqlite3.connect(place, uri=True, timeout=5)) as source, closing(sqlite3.connect(":memory:")) as target:
        source.backup(target)


@pytest.mark.parametrize(
    "workers,runs", [(3, 120), pytest.param(4, 1000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
@pytest.mark.sqlite_only
async def test_case_dbb_01(world: World, workers: int, runs: int) -> None:
    """SQLite says "database is locked" under ordinary use: a few processes on one file.

    Several workers, two client processes, a listing in a loop and a backup: all runs succeed, each step ran once,
    nobody logs more than a debug line about locks. Source: PrefectHQ/prefect#18934, #10188, coleifer/huey#445,
    xerrors/Yuxi#875.
    """
    children = [world.worker(f"W{n}", lease="10s") for n in range(workers)]
    for client in ("C1", "C2"):
        start = [[f"{client}-{n}", "three_steps", {}] for n in range(runs // 2)]
        children.append(world.worker(client, client=True, start=start, wait=False))
    stop = asyncio.Event()
    reading = asyncio.create_task(read_on(world, stop))
    done = "select count(*) from run where status = 'completed'"
    for child in children[-2:]:
        await asyncio.to_thread(child.finish, 60)
    await until(lambda: world.rows(done) == [(runs,)], 100, "all have ended")
    stop.set()
    assert await reading > 0
    for step in ("first", "second", "third"):
        assert set(world.ledger.counts(step).values()) == {1}
    for child in children:
        assert "locked" not in child.err
        assert "WARNING" not in child.err


@pytest.mark.sqlite_only
@pytest.mark.parametrize("workers,runs", [(4, 200), pytest.param(8, 2000, marks=[pytest.mark.nightly])])
async def test_case_dbb_02(world: World, workers: int, runs: int) -> None:
    """Two workers take the same SQLite row: select-then-delete without the write lock.

    Many trivial runs, several worker processes let go at one moment; each run is executed once.
    Source: coleifer/huey#123, coleifer/huey#253.
    """
    go = world.folder / "flag-barrier"
    async with world.client() as client:
        starts: list[Awaitable[Any]] = [client.start(flows.trivial, n, id=f"r{n}") for n in range(runs)]
        await asyncio.gather(*starts)
    for n in range(workers):
        world.worker(f"W{n}", barrier=str(go), lease="10s", concurrency=10)
    go.touch()
    await until(lambda: world.rows("select count(*) from run where status = 'completed'") == [(runs,)], 60)
    assert world.ledger.counts("last") == {f"r{n}": 1 for n in range(runs)}
    assert world.rows(
        "select max(n) from (select count(*) n from event where type = 'run_claimed' group by run_id)"
    ) == [(1,)]


KILLED_IN_MIGRATION = """
import os, signal, sys
import apsw
from perdure.errors import PerdureError
from perdure.store.base import StoreOptions, open_store

url, folder = sys.argv[1:]
for n in range(1, 500):
    place = f"{folder}/{n}.db"
    child = os.fork()
    if child == 0:
        left = n

        def trace(cursor, statement, bindings):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", trace))
        open_store(f"sqlite:///{place}", StoreOptions()).open()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(place, flush=True)
    if status == 0:
        print("DONE", n, flush=True)
        break
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
"""


@everywhere
@pytest.mark.parametrize("processes", [8, pytest.param(10, marks=pytest.mark.nightly)])
async def test_case_dbb_07(world: World, processes: int) -> None:
    """Everybody migrates at once: all but one crash on "already exists", or leave half a schema.

    Many processes at a barrier on a database that does not exist: all work.
    Source: langflow-ai/langflow PR#13204, PR#13393, lincolnloop/django-absurd#195, dbos-inc/dbos-transact-py PR#603.
    """
    if world.database is not None and isinstance(world.database.server, Postgres):
        world.database.execute("drop schema perdure cascade")  # where the tables of a test are there from the beginning
    go = world.folder / "flag-barrier"
    children = [
        world.worker(f"W{n}", barrier=str(go), client=True, start=[[f"r{n}", "trivial", {"n": n}]])
        for n in range(processes)
    ]
    go.touch()
    ended = [child.finish() for child in children]
    assert [each.code for each in ended] == [0] * processes, next(each.err for each in ended if each.code)
    async with world.engine() as engine:
        assert [await engine.get(f"r{n}").result(timeout=30) for n in range(processes)] == list(range(processes))
    assert world.rows("select count(*) = max(number) from schema_migration") == [(1,)]


async def test_case_dbb_07_killed(world: World, spawn: Spawner) -> None:
    """The one that migrates is killed at each of its statements in turn; the next one to open it can work."""
    path = str(world.folder)
    source = str(Path(perdure.__file__).parents[1])
    child = spawn(sys.executable, "-c", KILLED_IN_MIGRATION, world.url, path, env={"PYTHONPATH": source})
    done = child.finish(50)
    assert done.code == 0, done.err
    places = [line for line in done.out.splitlines() if line.endswith(".db")]
    assert "DONE" in done.out
    assert len(places) > 5
    for place in places:
        store = open_store(f"sqlite:///{place}", StoreOptions())
        store.open()
        assert store.stats().runs == {}
        store.close()
        with closing(apsw.Connection(place)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


KILLED_ON_A_SERVER = """
import os, signal, sys
from perdure.store.base import StoreOptions, open_store
from perdure.store.mysql.link import MysqlLink
from perdure.store.postgres.link import PostgresLink

left = 0

def counted(real):
    def call(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return call

def one_by_one(link, sql):
    for statement in sql.split(";\\n\\n"):
        link.run([statement.encode().strip().rstrip(b";")], several=True)

MysqlLink.run, MysqlLink.script = counted(MysqlLink.run), one_by_one
PostgresLink.run, PostgresLink.script = counted(PostgresLink.run), counted(PostgresLink.script)
for number, url in enumerate(sys.argv[1:], 1):
    child = os.fork()
    if child == 0:
        left = number if len(sys.argv) > 2 else 0
        open_store(url, StoreOptions()).open()
        print("CALLS", -left, flush=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (-signal.SIGKILL if len(sys.argv) > 2 else 0), (number, status)
"""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_case_dbb_07_killed_on_a_server(new_database: Callable[[str], Database], spawn: Spawner, kind: str) -> None:
    """The same on a server: killed at each call, and on MariaDB, where each is a transaction, at each statement."""
    source = {"PYTHONPATH": str(Path(perdure.__file__).parents[1])}
    whole = new_database(kind)
    counted = spawn.python(KILLED_ON_A_SERVER, whole.url, env=source)
    calls = int(counted.expect("CALLS", 120).split()[1])
    assert calls > 10
    databases = [new_database(kind) for _ in range(calls)]
    done = spawn.python(KILLED_ON_A_SERVER, *(one.url for one in databases), env=source).finish(900)
    assert done.code == 0, done.err
    written = [written_in(one) for one in databases]
    assert 0 in written
    for database in databases:
        store = open_store(database.url, StoreOptions())
        store.open()
        assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
        store.close()
        assert database.rows(APPLIED) == whole.rows(APPLIED)
        assert written_in(database) == written_in(whole)


APPLIED = "select number, name, checksum from schema_migration order by number"


def written_in(database: Database) -> int:
    """Count the columns of all tables that are not the server's own."""
    mine = "select count(*) from information_schema.columns where table_schema = "
    if isinstance(database.server, Postgres):
        return int(database.execute(f"{mine} 'perdure'")[0][0])
    return int(database.execute(f"{mine} database()")[0][0])


@everywhere
async def test_case_dbb_15(world: World) -> None:
    """Long keys are cut and collide, or cannot be indexed. (The part of every backend; MySQL's comes with MySQL.)

    Two ids of the greatest length that differ in the last character, of ASCII and of 4-byte characters, are two runs;
    one character more is refused before anything is stored. Source: celery/django-celery-results PR#287,
    celery/kombu#265.
    """
    async with world.engine() as engine:
        for character in "x🐟":
            ids = [character * 254 + last for last in "ab"]
            assert [await engine.run(flows.trivial, n, id=run_id) for n, run_id in enumerate(ids)] == [0, 1]
            with pytest.raises(perdure.UsageError, match="255"):
                await engine.start(flows.trivial, 2, id=character * 256)
        assert len([info async for info in engine.list()]) == 4
