"""Starting a run inside the caller's transaction, in the engine's own database: it exists if that is committed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import IdConflict, RunNotFound, UsageError
from perdure.verify.database import verify
from tests.guard.clients import KINDS, AsyncClient, Client, Place
from tests.house.tree import ROOT
from tests.process import Spawner
from tests.servers.fixtures import Database, Servers
from tests.servers.postgres import USER, Postgres

ON_SERVERS = sorted(kind for kind, (_, dialect) in KINDS.items() if dialect != "sqlite")
LOOK_S = 0.2
seen: list[tuple[int, bool]] = []
numbers = count(1)
place: list[Place] = []


@perdure.step
def look(order: int) -> bool:
    plain = "psycopg" if place[0].dialect == "postgresql" else "pymysql"
    with closing(KINDS[plain][0](place[0])) as client, client.transaction():
        found = client.execute("select id from orders where id = ?", order) == [(order,)]
    seen.append((order, found))
    return found


@perdure.workflow
def fulfil(order: int) -> bool:
    return look(order)


class Caller:
    """An application: its connection, and an engine of the colour that goes with it."""

    def __init__(self, client: Client, engine: perdure.SyncEngine) -> None:
        self.client = client
        self.engine = engine

    def start(self, *args: Any, **options: Any) -> str:
        if isinstance(self.client, AsyncClient):
            return self.client.wait(self._start(*args, **options))
        return self.engine.start_in(self.client.raw, fulfil, *args, **options).id

    async def _start(self, *args: Any, **options: Any) -> str:
        url = self.engine.engine.url
        async with perdure.Engine(url, [fulfil], worker=False) as engine:
            run = await engine.start_in(self.client.raw, fulfil, *args, **options)
            return run.id


@pytest.fixture(params=ON_SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, new_store: Callable[[str], Database]) -> Database:
    """Give the database of engine and application, with the application's table."""
    database = new_store("mariadb" if KINDS[kind][1] == "mysql" else "postgres")
    place[:] = [Place(KINDS[kind][1], port=database.server.port, user=USER, database=database.name)]
    seen.clear()
    database.execute("create table orders (id integer primary key)")
    return database


@pytest.fixture
def caller(kind: str, database: Database) -> Iterator[Caller]:
    with (
        perdure.SyncEngine(database.url, [fulfil], poll="50ms") as engine,
        closing(KINDS[kind][0](place[0])) as client,
    ):
        yield Caller(client, engine)


def runs(caller: Caller) -> list[str]:
    return sorted(info.id for info in caller.engine.list())


def second_of_two(caller: Caller, kind: str, one: dict[str, str], other: dict[str, str], *, commits: bool) -> str:
    """Start in two transactions at once, and see the second wait until the first ends. Give the id that it gets."""
    ids: list[str] = []

    def second() -> None:
        with closing(KINDS[kind][0](place[0])) as client, client.transaction():
            ids.append(Caller(client, caller.engine).start(1, **other))

    thread = threading.Thread(target=second)
    client = caller.client
    client.begin()
    client.execute("insert into orders values (1)")
    caller.start(1, **one)
    thread.start()
    thread.join(LOOK_S)
    assert thread.is_alive()
    if commits:
        client.commit()
    else:
        client.rollback()
    thread.join(10)
    (found,) = ids
    return found


def test_case_per_03(caller: Caller) -> None:
    client = caller.client
    with client.transaction():
        client.execute("insert into orders values (1)")
        assert caller.start(1, id="order-1", tags={"kind": "a"}, priority=3) == "order-1"
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(asyncio.Event().wait(), LOOK_S))  # idle workers look meanwhile
        assert seen == []
        assert runs(caller) == []
    assert caller.engine.get("order-1").result("10s") is True
    assert seen == [(1, True)]
    with pytest.raises(ZeroDivisionError), client.transaction():
        client.execute("insert into orders values (2)")
        caller.start(2, id="order-2")
        raise ZeroDivisionError
    assert runs(caller) == ["order-1"]
    assert [info.tags for info in caller.engine.list(tag={"kind": "a"})] == [{"kind": "a"}]
    assert seen == [(1, True)]


def test_a_deduplication_key_is_that_of_start(caller: Caller) -> None:
    client, engine = caller.client, caller.engine
    with perdure.SyncEngine(engine.engine.url, [fulfil], worker=False) as elsewhere:
        later = elsewhere.start(fulfil, 1, id="order-1", deduplication_key="shop", delay="1h")
    with client.transaction():
        assert caller.start(2, id="order-2", deduplication_key="shop") == later.id
        assert caller.start(3, id="order-3", deduplication_key="other") == "order-3"
        assert caller.start(4, id="order-4", deduplication_key="other") == "order-3"
        assert caller.start(5, id="order-5", deduplication_key="shop", queue="apart") == "order-5"
    assert runs(caller) == ["order-1", "order-3", "order-5"]
    assert engine.get("order-3").result("10s") is False
    with client.transaction():  # who had it has ended
        assert caller.start(6, id="order-6", deduplication_key="other") == "order-6"
    assert engine.start(fulfil, 7, deduplication_key="shop").id == "order-1"
    with pytest.raises(ZeroDivisionError), client.transaction():
        caller.start(8, id="order-8", deduplication_key="new")
        raise ZeroDivisionError
    assert engine.start(fulfil, 9, id="order-9", deduplication_key="new").id == "order-9"
    assert verify(engine.engine.url).findings == []


@pytest.mark.parametrize("kind", ["psycopg", "pymysql", "psycopg-async", "sqlalchemy-async-mysql"])
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_of_two_with_a_key_waits_for_the_first(caller: Caller, kind: str, commits: bool) -> None:
    keyed = {"deduplication_key": "shop", "delay": "1h"}
    found = second_of_two(caller, kind, {"id": "order-1", **keyed}, {"id": "order-2", **keyed}, commits=commits)
    assert found == ("order-1" if commits else "order-2")
    assert runs(caller) == [found]


@pytest.mark.parametrize("through", ["pgbouncer", "postgres18"])
@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async", "sqlalchemy-postgresql", "django-postgresql"])
def test_through_a_pooler_and_on_postgresql_18(
    kind: str, through: str, servers: Servers, new_database: Callable[[str], Database]
) -> None:
    """Engine and application are both behind the pooler, where no two transactions need have one session."""
    database = new_database("postgres18" if through == "postgres18" else "postgres")
    server, port = database.server, database.server.port
    assert isinstance(server, Postgres)
    if through == "pgbouncer":
        port = servers.pgbouncer(server, settings={"default_pool_size": 3}).port
    place[:] = [Place("postgresql", port=port, user=USER, database=database.name)]
    seen.clear()
    database.execute("create table orders (id integer primary key)")
    with (
        perdure.SyncEngine(server.url(database.name, port=port), [fulfil], poll="50ms") as engine,
        closing(KINDS[kind][0](place[0])) as client,
    ):
        caller = Caller(client, engine)
        for order in (1, 2):
            with client.transaction():
                client.execute(f"insert into orders values ({order})")
                assert caller.start(order, id=f"order-{order}", deduplication_key=f"key-{order}") == f"order-{order}"
                assert caller.start(order, id="again", deduplication_key=f"key-{order}") == f"order-{order}"
        with pytest.raises(ZeroDivisionError), client.transaction():
            caller.start(3, id="order-3", deduplication_key="key-3")
            raise ZeroDivisionError
        assert [engine.get(f"order-{order}").result("10s") for order in (1, 2)] == [True, True]
        assert runs(caller) == ["order-1", "order-2"]
    assert verify(database.url).findings == []


KILLED = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import perdure
from tests.guard import test_start_in
from tests.guard.clients import KINDS, Place

kind, url, place = sys.argv[2], sys.argv[3], Place(*json.loads(sys.argv[4]))
with perdure.SyncEngine(url, [test_start_in.fulfil], worker=False) as engine:
    client = KINDS[kind][0](place)
    with client.transaction():
        client.execute("insert into orders values (1)")
        engine.start_in(client.raw, test_start_in.fulfil, 1, id="order-1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_case_per_03_killed(caller: Caller, database: Database, kind: str, spawn: Spawner) -> None:
    child = spawn.python(KILLED, str(ROOT), kind, database.url, json.dumps(place[0]))
    assert child.finish().code == -signal.SIGKILL, child.err
    assert caller.engine.get("order-1").result("10s") is True
    assert seen == [(1, True)]


def test_a_repeat_is_the_same_run_and_another_start_is_refused(caller: Caller) -> None:
    client = caller.client
    for _ in range(2):
        with client.transaction():
            assert caller.start(1, id="order-1") == "order-1"
            assert caller.start(1, id="order-1") == "order-1"
    with pytest.raises(IdConflict), client.transaction():
        caller.start(2, id="order-1")
    assert caller.engine.get("order-1").result("10s") is False
    caller.engine.purge("order-1")
    with client.transaction():
        assert caller.start(1, id="order-1") == "order-1"
        with pytest.raises(IdConflict):
            caller.start(2, id="order-1")
    assert runs(caller) == []
    assert caller.engine.start(fulfil, 1, id="order-1").id == "order-1"
    assert len(seen) == 1


def test_what_the_engine_started_is_found(caller: Caller) -> None:
    assert caller.engine.run(fulfil, 7, id="order-7") is False
    with caller.client.transaction():
        assert caller.start(order=7, id="order-7") == "order-7"
    assert len(seen) == 1
    log = caller.engine.get("order-7").history()
    assert [event.seq for event in log] == list(range(1, len(log) + 1))


@pytest.mark.parametrize("kind", ["psycopg", "pymysql", "psycopg-async", "sqlalchemy-async-mysql"])
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_of_two_waits_for_the_first(caller: Caller, kind: str, commits: bool) -> None:
    start = {"id": "order-1"}
    assert second_of_two(caller, kind, start, start, commits=commits) == "order-1"
    assert caller.engine.get("order-1").result("10s") is commits
    assert len(seen) == 1


@pytest.mark.parametrize("kind", ["psycopg", "pymysql", "django-postgresql"])
def test_wrong_starts_leave_nothing(caller: Caller, kind: str) -> None:
    client = caller.client
    with client.transaction():
        client.execute("insert into orders values (1)")
        for wrong in ({"id": ""}, {"queue": ""}, {"priority": "high"}, {"delay": "soon"}, {"colour": "red"}):
            with pytest.raises(UsageError):
                caller.start(1, **wrong)
    assert client.execute("select id from orders") == [(1,)]
    client.rollback() if kind == "psycopg" else None
    assert runs(caller) == []


@pytest.mark.parametrize("kind", ["psycopg"])
def test_a_connection_that_cannot_be_used_is_refused(caller: Caller, tmp_path: Path) -> None:
    other = KINDS["sqlite3"][0](Place("sqlite", file=str(tmp_path / "app.db")))
    with closing(other), pytest.raises(UsageError, match="is to sqlite, and the engine's database is postgresql"):
        caller.engine.start_in(other.raw, fulfil, 1)
    caller.client.raw.autocommit = True
    with pytest.raises(UsageError, match="commits each statement"):
        caller.start(1)


def test_an_engine_on_a_file_takes_no_part_in_transactions_of_others(tmp_path: Path) -> None:
    place = Place("sqlite", file=str(tmp_path / "runs.db"))
    with (
        perdure.SyncEngine(f"sqlite:///{place.file}", [fulfil], worker=False) as engine,
        closing(KINDS["sqlite3"][0](place)) as own,
    ):
        with pytest.raises(UsageError, match="takes no part in transactions of others"):
            engine.start_in(own.raw, fulfil, 1, id="order-1")
        with pytest.raises(RunNotFound):
            engine.get("order-1").status()


@pytest.mark.parametrize("kind", ["psycopg"])
def test_a_database_without_the_tables_is_told(caller: Caller, new_database: Callable[[str], Database]) -> None:
    other = new_database("postgres")
    client = KINDS["psycopg"][0](place[0]._replace(database=other.name))
    with closing(client), pytest.raises(UsageError, match="not in the connection's database"), client.transaction():
        caller.engine.start_in(client.raw, fulfil, 1)


@pytest.fixture
def role(caller: Caller, database: Database) -> Iterator[Place]:
    """Give a role that has its own table and, of the engine, exactly the rights that the page names."""
    mysql = place[0].dialect == "mysql"
    name = f"shop_{database.name}"
    page = (ROOT / "docs" / "how-to" / "transactional-start.md").read_text("utf-8")
    found = re.search(rf"\*\*{'MySQL' if mysql else 'PostgreSQL'}.*?\n```sql\n(.*?)```", page, re.DOTALL)
    assert found
    granted = re.sub(r"\bto shop;", f"to {name};", found[1])
    if mysql:
        granted = granted.replace("perdure.", f"{database.name}.")
        own = f"{database.name}.orders"
    else:
        own = "orders"
    database.execute(f"create user {name}")
    for statement in (*granted.split(";")[:-1], f"grant select, insert on {own} to {name}"):
        database.execute(statement)
    yield place[0]._replace(user=name)
    if mysql:
        database.execute(f"drop user {name}")
    else:
        database.execute(f"drop owned by {name}")
        database.execute(f"drop role {name}")


@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_a_role_needs_only_the_documented_rights(caller: Caller, role: Place, kind: str) -> None:
    caller.engine.run(fulfil, 0, id="order-0")
    every: dict[str, Any] = {
        "queue": "default", "priority": 3, "delay": "1ms", "timeout": "9h", "tags": {"kind": "a"},
        "partition_key": "ada", "version": caller.engine.get("order-0").info().version,
    }  # fmt: skip
    with closing(KINDS[kind][0](role)) as client:
        limited = Caller(client, caller.engine)
        with client.transaction():
            for order, delay in enumerate(
                ("1h", "2h", "0s"), start=1
            ):  # one makes the line, one joins it, one heads it
                client.execute("insert into orders values (?)", order)
                options = every | {"delay": delay, "deduplication_key": f"key-{order}"}
                assert limited.start(order, id=f"order-{order}", **options) == f"order-{order}"
        with client.transaction():
            options = every | {"delay": "1h", "deduplication_key": "key-1"}
            assert limited.start(1, id="order-1", **options) == "order-1"
            assert limited.start(1, id="order-1b", **options) == "order-1"  # its key is taken
        assert caller.engine.get("order-3").result("10s") is True
        with client.transaction():
            options |= {"deduplication_key": "key-3"}  # which is free again
            assert limited.start(3, id="order-3b", **options) == "order-3b"
        with pytest.raises(Exception, match=r"denied"), client.transaction():
            client.execute("delete from orders")
