"""Whether a step's database is the engine's own is asked of the servers, and what follows from the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

import perdure
from perdure.verify.database import verify
from tests.guard.own_till import app, dialect_of, flow, ledger, plain, prepare, tables
from tests.guard.test_transactional import WHERE
from tests.servers import fixtures
from tests.servers.fixtures import Servers
from tests.servers.postgres import USER, Postgres


@pytest.fixture
def database(kind: str, new_database: Callable[[str], fixtures.Database]) -> Iterator[fixtures.Database]:
    """Give the database of the engine and of the application."""
    database = new_database("mariadb" if dialect_of(kind) == "mysql" else "postgres")
    prepare(database, kind)
    yield database
    assert verify(database.url).findings == []


@plain
async def test_another_database_is_apart(
    database: fixtures.Database, kind: str, new_database: Callable[[str], fixtures.Database]
) -> None:
    """On PostgreSQL a transaction is in one database; on MySQL in all of a server."""
    other = new_database("mariadb" if kind == "pymysql" else "postgres")
    other.execute("create table ledger (what varchar(100))")
    WHERE[:] = [WHERE[0]._replace(database=other.name)]
    async with perdure.Engine(database.url, [flow]) as engine:
        await engine.run(flow, "teapot")
    assert ledger(other) == ["teapot"]
    assert ("perdure_guard" in tables(other)) is (kind == "psycopg")


@plain
async def test_another_server_is_apart(database: fixtures.Database, kind: str, servers: Servers) -> None:
    """The same names on both: only the server itself tells them apart."""
    other = servers.start("mariadb" if kind == "pymysql" else "postgres")
    name = other.new_database()
    other.execute("create table ledger (what varchar(100))", database=name)
    async with perdure.Engine(other.url(name), [flow], worker=False):
        pass
    WHERE[:] = [WHERE[0]._replace(port=other.port, database=name)]
    async with perdure.Engine(database.url, [flow]) as engine:
        await engine.run(flow, "teapot")
    assert other.execute("select what from ledger", database=name) == [("teapot",)]
    # On PostgreSQL the first schema of a role is that of its name, which the engine's tables are in.
    where = "perdure." if kind == "psycopg" else ""
    assert other.execute(f"select count(*) from {where}perdure_guard", database=name) == [(1,)]


GRANTS = {
    "psycopg": ("create role clerk login", "grant all on schema public to clerk", "grant all on ledger to clerk"),
    "pymysql": (
        "create user clerk@'%'", "grant create, select, insert, update on `{name}`.perdure_guard to clerk@'%'",
        "grant all on `{name}`.ledger to clerk@'%'",
    ),
}  # fmt: skip
FORGET = {"psycopg": ("drop owned by clerk", "drop role clerk"), "pymysql": ("drop user clerk@'%'",)}


@plain
async def test_without_the_rights_there_is_a_table_of_requests(
    database: fixtures.Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a worker without them has left there is found by one that has them."""
    for text in GRANTS[kind]:
        database.execute(text.format(name=database.name))
    try:
        WHERE[:] = [WHERE[0]._replace(user="clerk")]
        async with perdure.Engine(database.url, [flow]) as engine:
            assert await engine.run(flow, "teapot", id="run-1") == "teapot 1"
        assert "at the cost of a second commit" in caplog.text
        assert "perdure_guard" in tables(database)
        database.execute("update perdure_guard set request_id = 'step/run-2:0'")
        WHERE[:] = [WHERE[0]._replace(user=USER)]
        app.known.clear()
        async with perdure.Engine(database.url, [flow]) as engine:
            assert await engine.run(flow, "teapot", id="run-2") == "teapot 1"
            assert await engine.run(flow, "kettle", id="run-3") == "kettle 2"
        assert sorted(ledger(database)) == ["kettle", "teapot"]
        assert database.execute("select count(*) from perdure_guard") == [(2,)]
    finally:
        for text in FORGET[kind]:
            database.execute(text)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
@pytest.mark.parametrize("both_through", [True, False])
async def test_through_a_pooler(database: fixtures.Database, servers: Servers, both_through: bool) -> None:
    assert isinstance(database.server, Postgres)
    pooler = servers.pgbouncer(database.server)
    WHERE[:] = [WHERE[0]._replace(port=pooler.port)]
    async with perdure.Engine(pooler.url(database.name) if both_through else database.url, [flow]) as engine:
        assert await engine.run(flow, "teapot", id="run-1") == "teapot 1"
        assert await engine.run(flow, "kettle", id="run-2") == "kettle 2"
    assert "perdure_guard" not in tables(database)
    assert sorted(ledger(database)) == ["kettle", "teapot"]
    with psycopg.connect(pooler.url(database.name), autocommit=True) as connection:
        found = connection.execute("select current_setting('idle_in_transaction_session_timeout')").fetchone()
    assert found == ("0",)


async def test_on_postgresql_18(postgres18_db: fixtures.Database) -> None:
    prepare(postgres18_db, "psycopg")
    async with perdure.Engine(postgres18_db.url, [flow]) as engine:
        assert await engine.run(flow, "teapot", id="run-1") == "teapot 1"
    assert "perdure_guard" not in tables(postgres18_db)
    assert ledger(postgres18_db) == ["teapot"]
    assert verify(postgres18_db.url).findings == []
