"""Transactional steps in the application's own database: the effect and the result are one, and happen once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import perdure
from perdure import Database, RunFailed, UsageError
from tests.guard.clients import KINDS, Client, Django, Place
from tests.guard.conftest import TABLES, NewPlace
from tests.servers.fixtures import Servers
from tests.servers.postgres import USER

WHERE: list[Place] = []
"""The application's database of the test that runs; before it, the kind of connection."""
KIND: list[str] = [""]
numbers = count(1)


def apsw_connection() -> apsw.Connection:
    connection = apsw.Connection(WHERE[0].file)
    connection.set_busy_timeout(8000)
    return connection


@contextmanager
def pooled() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(WHERE[0].file)) as connection:
        yield connection


def engine_of(driver: str) -> Any:
    return sqlalchemy.create_engine(WHERE[0].sqlalchemy_url(driver), poolclass=sqlalchemy.NullPool)


def async_engine_of(driver: str) -> Any:
    return create_async_engine(WHERE[0].sqlalchemy_url(driver), poolclass=sqlalchemy.NullPool)


BLOCKING: dict[str, Callable[[], Any]] = {
    "sqlite3": lambda: sqlite3.connect(WHERE[0].file),
    "pool-sqlite": pooled,
    "apsw": apsw_connection,
    "psycopg": lambda: psycopg.connect(WHERE[0].postgresql()),
    "psycopg-autocommit-postgresql": lambda: psycopg.connect(WHERE[0].postgresql(), autocommit=True),
    "pymysql": lambda: pymysql.connect(**WHERE[0].mysql()),
    "sqlalchemy-sqlite": lambda: engine_of("pysqlite").connect(),
    "sqlalchemy-postgresql": lambda: engine_of("psycopg").connect(),
    "sqlalchemy-mysql": lambda: engine_of("pymysql").connect(),
    "sqlalchemy-session-postgresql": lambda: Session(engine_of("psycopg")),
    "django-sqlite": lambda: Django(WHERE[0]).raw,
    "django-postgresql": lambda: Django(WHERE[0]).raw,
    "django-mysql": lambda: Django(WHERE[0]).raw,
}
ASYNC: dict[str, Callable[[], Any]] = {
    "psycopg-async": lambda: psycopg.AsyncConnection.connect(WHERE[0].postgresql()),
    "sqlalchemy-async-sqlite": lambda: async_engine_of("aiosqlite").connect(),
    "sqlalchemy-async-postgresql": lambda: async_engine_of("psycopg").connect(),
    "sqlalchemy-async-mysql": lambda: async_engine_of("aiomysql").connect(),
    "sqlalchemy-async-session-postgresql": lambda: AsyncSession(async_engine_of("psycopg")),
}
both = pytest.mark.parametrize("kind", [*BLOCKING, *ASYNC])


def dialect_of(kind: str) -> str:
    return KINDS[kind][1] if kind in KINDS else kind.rpartition("-")[2]


def write(connection: Any, text: str, *values: Any) -> Any:
    """Execute a statement; on an async connection return what is to be awaited."""
    if "sqlalchemy" in KIND[0]:
        first, *rest = text.split("?")
        named = first + "".join(f":p{number}{part}" for number, part in enumerate(rest))
        return connection.execute(sqlalchemy.text(named), {f"p{n}": value for n, value in enumerate(values)})
    if "sqlite3" in KIND[0] or "pool" in KIND[0] or "apsw" in KIND[0]:
        return connection.execute(text, values)
    text = text.replace("?", "%s")
    if KIND[0] == "psycopg-async":
        return connection.execute(text, values)
    return connection.cursor().execute(text, values)


FAILURES: list[Exception] = []
ALSO: list[Callable[[Any], Any]] = []


def connect() -> Any:
    return (BLOCKING | ASYNC)[KIND[0]]()


app: Database[Any] = Database(connect)
again = perdure.Retry(attempts=4, initial="1ms")


@perdure.step(mode="transaction", database=app, retry=again)
def take(what: str) -> list[object]:
    write(app.connection, "insert into ledger values (?)", what)
    if FAILURES:
        raise FAILURES.pop()
    for each in ALSO:
        each(app.connection)
    return [what, next(numbers)]


@perdure.step(mode="transaction", database=app, retry=again)
async def take_async(what: str) -> list[object]:
    await write(app.connection, "insert into ledger values (?)", what)
    if FAILURES:
        raise FAILURES.pop()
    for each in ALSO:
        await each(app.connection)
    return [what, next(numbers)]


@perdure.workflow
async def flow(what: str) -> list[object]:
    return await (take_async(what) if KIND[0] in ASYNC else take.aio(what))


@pytest.fixture
def shop(kind: str, new_place: NewPlace) -> Iterator[Client]:
    """Give a client of the application's database, with its tables."""
    WHERE[:] = [new_place(dialect_of(kind))]
    KIND[:] = [kind]
    FAILURES.clear()
    ALSO.clear()
    app.known.clear()
    plain = {"sqlite": "sqlite3", "postgresql": "psycopg", "mysql": "pymysql"}[WHERE[0].dialect]
    with closing(KINDS[plain][0](WHERE[0])) as client:
        with client.transaction():
            for text in TABLES:
                client.execute(text)
        yield client


def ledger(client: Client) -> list[str]:
    with client.transaction():
        return [row[0] for row in client.execute("select what from ledger")]


def keys(client: Client) -> list[str]:
    with client.transaction():
        found = client.execute("select request_id from perdure_guard")
    return [key.decode() if isinstance(key, bytes) else key for (key,) in found]


@both
async def test_the_writes_and_the_result_are_committed_together(shop: Client, tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [flow]) as engine:
        what, _ = await engine.run(flow, "teapot", id="run-1")
    assert what == "teapot"
    assert ledger(shop) == ["teapot"]
    assert keys(shop) == ["step/run-1:0"]


@both
async def test_a_step_that_raises_leaves_nothing_and_is_tried_again(shop: Client, tmp_db: str) -> None:
    FAILURES[:] = [ConnectionError("second"), ConnectionError("first")]
    async with perdure.Engine(tmp_db, [flow]) as engine:
        await engine.run(flow, "teapot", id="run-1")
        FAILURES[:] = [ConnectionError(str(number)) for number in range(4)]
        with pytest.raises(RunFailed, match="ConnectionError"):
            await engine.run(flow, "kettle", id="run-2")
    assert ledger(shop) == ["teapot"]
    assert keys(shop) == ["step/run-1:0"]


@both
async def test_a_repeat_finds_the_result_of_the_first(shop: Client, tmp_path: Path) -> None:
    results = []
    for name in ("a.db", "b.db"):  # an engine that has lost its record, as after a crash before it was written
        async with perdure.Engine(f"sqlite:///{tmp_path / name}", [flow]) as engine:
            results.append(await engine.run(flow, "teapot", id="run-1"))
    assert results[0] == results[1]
    assert ledger(shop) == ["teapot"]


@both
@pytest.mark.parametrize("what", ["commit", "rollback"])
async def test_a_step_cannot_end_its_own_transaction(shop: Client, kind: str, tmp_db: str, what: str) -> None:
    def end(connection: Any) -> Any:
        if kind == "apsw":
            return connection.execute(what)
        return getattr(connection, what)()

    ALSO[:] = [end]
    async with perdure.Engine(tmp_db, [flow]) as engine:
        with pytest.raises(RunFailed, match=r"would end the transaction|allowed|atomic"):
            await engine.run(flow, "teapot", id="run-1")
    assert ledger(shop) == []
    assert keys(shop) == []


@pytest.mark.parametrize("kind", ["pymysql", "sqlalchemy-mysql", "django-mysql", "sqlalchemy-async-mysql"])
@pytest.mark.parametrize(
    "text", ["create table other (x int)", "/* a note */ TRUNCATE ledger", "commit", "start transaction"]
)
async def test_what_commits_on_mysql_is_refused_before_it_does(shop: Client, tmp_db: str, text: str) -> None:
    ALSO[:] = [lambda connection: write(connection, text)]
    async with perdure.Engine(tmp_db, [flow]) as engine:
        with pytest.raises(RunFailed, match="would end the transaction"):
            await engine.run(flow, "teapot", id="run-1")
    assert ledger(shop) == []
    ALSO[:] = [lambda connection: write(connection, "create temporary table other (x int)")]
    async with perdure.Engine(tmp_db, [flow]) as engine:
        await engine.run(flow, "teapot", id="run-2")
    assert ledger(shop) == ["teapot"]


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
async def test_a_commit_that_cannot_be_refused_is_told(shop: Client, tmp_db: str) -> None:
    ALSO[:] = [lambda connection: connection.execute("commit")]
    async with perdure.Engine(tmp_db, [flow]) as engine:
        with pytest.raises(RunFailed, match=r"not the one it was begun in|committed without a result"):
            await engine.run(flow, "teapot", id="run-1")


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "pymysql"])
def test_of_two_workers_with_one_step_one_does_it(shop: Client, tmp_path: Path) -> None:
    """A worker that has lost the run does not know it yet: both have the step."""
    results: list[list[object]] = []
    together = threading.Barrier(2)

    def work(number: int) -> None:
        with perdure.SyncEngine(f"sqlite:///{tmp_path / f'{number}.db'}", [flow]) as engine:
            together.wait(5)
            results.append(engine.run(flow, "teapot", id="run-1"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert len(results) == 2
    assert results[0] == results[1]
    assert ledger(shop) == ["teapot"]


async def test_the_engines_own_file_is_refused(tmp_path: Path) -> None:
    WHERE[:], KIND[:] = [Place("sqlite", file=str(tmp_path / "one.db"))], ["sqlite3"]
    ALSO.clear()
    app.known.clear()
    async with perdure.Engine(f"sqlite:///{tmp_path / 'one.db'}", [flow]) as engine:
        with pytest.raises(RunFailed, match="engine's own SQLite file"):
            await engine.run(flow, "teapot")


@pytest.mark.parametrize("kind", ["psycopg"])
async def test_the_colour_of_step_and_connection_must_agree(shop: Client, tmp_db: str) -> None:
    other: Database[Any] = Database(ASYNC["psycopg-async"])

    @perdure.step(name="blocking", mode="transaction", database=other)
    def blocking() -> None: ...

    @perdure.step(name="waiting", mode="transaction", database=app)
    async def waiting() -> None: ...

    @perdure.workflow(name="mixed")
    async def mixed(which: str) -> None:
        await (blocking.aio() if which == "blocking" else waiting())

    async with perdure.Engine(tmp_db, [mixed]) as engine:
        with pytest.raises(RunFailed, match="async connection cannot be used"):
            await engine.run(mixed, "blocking")
        with pytest.raises(RunFailed, match="cannot be awaited"):
            await engine.run(mixed, "waiting")


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg-async"])
async def test_without_an_engine_a_step_is_the_function_in_a_transaction(shop: Client, kind: str) -> None:
    with pytest.raises(UsageError, match="outside of a transactional step"):
        await take_async("x") if kind in ASYNC else take("x")
    if kind in ASYNC:
        async with app.transaction():
            await take_async("teapot")
        with pytest.raises(ZeroDivisionError):
            async with app.transaction():
                await take_async("kettle")
                raise ZeroDivisionError
    else:
        with app.transaction():
            take("teapot")
        with pytest.raises(ZeroDivisionError), app.transaction():
            take("kettle")
            raise ZeroDivisionError
    assert ledger(shop) == ["teapot"]


def test_mode_and_database_belong_together() -> None:
    for wrong in ({"mode": "transaction"}, {"database": app}, {"mode": "transaction", "database": "sqlite:///x"}):
        with pytest.raises(UsageError, match="belong together"):
            perdure.step(**wrong)
    with pytest.raises(UsageError, match="takes a function"):
        Database("sqlite:///x")  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["sqlite3"])
async def test_what_ended_too_late_is_rolled_back(shop: Client, tmp_db: str) -> None:
    may_end = threading.Event()

    @perdure.step(name="slow", mode="transaction", database=app, timeout="50ms")
    def slow() -> None:
        write(app.connection, "insert into ledger values ('late')")
        may_end.wait(5)

    @perdure.workflow(name="late")
    async def late() -> None:
        try:
            await slow.aio()
        finally:
            may_end.set()

    async with perdure.Engine(tmp_db, [late]) as engine:
        with pytest.raises(RunFailed, match="timed out"):
            await engine.run(late)
    assert ledger(shop) == []


@pytest.mark.parametrize("where", ["before", "after", "mid-reply"])
@pytest.mark.parametrize(
    "kind", ["psycopg", "psycopg-async", "pymysql", "sqlalchemy-postgresql", "sqlalchemy-async-mysql"]
)
async def test_a_commit_whose_answer_is_lost_is_looked_up(
    shop: Client, servers: Servers, shared_servers: Callable[[str], Any], kind: str, tmp_db: str, where: Any
) -> None:
    """What the step returned is what was committed: its number is that of the one attempt that was."""
    server = shared_servers("mariadb" if dialect_of(kind) == "mysql" else "postgres")
    proxy = servers.proxy(server)
    async with perdure.Engine(tmp_db, [flow]) as engine:
        await engine.run(flow, "warm", id="run-0")
        WHERE[:] = [WHERE[0]._replace(port=proxy.port, user=USER)]
        proxy.on_commit(where, touching="ledger")
        first = next(numbers) + 1
        what, number = await engine.run(flow, "teapot", id="run-1")
        events = [event.type for event in await engine.get("run-1").history()]
    assert proxy.cuts == 1
    assert (what, number) == ("teapot", first + (where == "before"))
    assert ("step_attempt_failed" in events) is (where == "before")
    assert ledger(shop) == ["warm", "teapot"]


async def test_a_result_that_the_engine_stores_in_its_own_way_is_kept(tmp_path: Path) -> None:
    WHERE[:], KIND[:] = [Place("sqlite", file=str(tmp_path / "app.db"))], ["sqlite3"]
    ALSO.clear()
    app.known.clear()
    with closing(sqlite3.connect(WHERE[0].file)) as connection:
        connection.execute("create table ledger (what text)")
    results = []
    for name in ("a.db", "b.db"):
        options: dict[str, Any] = {"codecs": {"pickle": {"key": b"k" * 32}}}
        async with perdure.Engine(f"sqlite:///{tmp_path / name}", [flow], **options) as engine:
            results.append(await engine.run(flow, "teapot", id="run-1"))
    assert results[0] == results[1]


async def test_it_can_be_cancelled(tmp_path: Path, tmp_db: str) -> None:
    begun = asyncio.Event()
    place = tmp_path / "app.db"
    database = Database(
        lambda: create_async_engine(f"sqlite+aiosqlite:///{place}", poolclass=sqlalchemy.NullPool).connect()
    )

    @perdure.step(name="endless", mode="transaction", database=database)
    async def endless() -> None:
        await database.connection.execute(sqlalchemy.text("create table other (x int)"))
        begun.set()
        await asyncio.sleep(60)

    @perdure.workflow(name="cancelled")
    async def cancelled() -> None:
        await endless()

    async with perdure.Engine(tmp_db, [cancelled]) as engine:
        run = await engine.start(cancelled)
        await begun.wait()
        await run.cancel()
        with pytest.raises(perdure.RunCancelled):
            await run.result()
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("select name from sqlite_schema where name = 'other'").fetchall() == []
