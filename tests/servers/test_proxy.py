"""The proxy cuts where it says: what a client is not told of is rolled back or committed, as ordered."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, LiteralString, Self

import psycopg
import pymysql
import pytest

from tests.servers.fixtures import Database, Servers
from tests.servers.mariadb import USER as MYSQL_USER
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, Where
from tests.servers.server import HOST
from tests.servers.wire import MysqlWire, PostgresWire

BROKEN = (psycopg.OperationalError, pymysql.err.OperationalError, pymysql.err.InternalError, ConnectionError)
CUTS: list[tuple[Where, int]] = [("before", 0), ("after", 1), ("mid-reply", 1)]


class Client:
    """The same few calls for both drivers."""

    def __init__(self, database: Database, proxy: Proxy, *, autocommit: bool = False) -> None:
        self.connection: psycopg.Connection | pymysql.Connection[Any]
        if isinstance(database.server, Postgres):
            url = database.server.url(database.name, port=proxy.port)
            self.connection = psycopg.connect(url, autocommit=autocommit, connect_timeout=10)
        else:
            self.connection = pymysql.connect(
                host=HOST, port=proxy.port, user=MYSQL_USER, database=database.name, autocommit=autocommit
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.fixture(params=["mariadb", "postgres"])
def database(new_database: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    database = new_database(request.param)
    database.execute("create table t (n int)")
    return database


@pytest.fixture
def proxy(servers: Servers, database: Database) -> Proxy:
    return servers.proxy(database.server)


def in_pipeline(connection: psycopg.Connection, statements: list[LiteralString], *, prepare: bool = True) -> None:
    with connection.pipeline():
        for statement in statements:
            connection.execute(statement, prepare=prepare)


def count(database: Database) -> int:
    rows = database.execute("select count(*) from t")
    return int(rows[0][0])


def settled(database: Database, expected: int) -> bool:
    """Say whether the number of rows is the expected one, once the server has noticed the end of the client."""
    deadline = time.monotonic() + 5
    while len(database.server.backends(database.name)) > 1:
        assert time.monotonic() < deadline
    return count(database) == expected


@pytest.mark.parametrize("where,rows", CUTS)
def test_a_cut_at_commit(database: Database, proxy: Proxy, where: Where, rows: int) -> None:
    proxy.on_commit(where)
    with Client(database, proxy) as client:
        client.execute("insert into t values (1)")
        with pytest.raises(BROKEN):
            client.connection.commit()
    proxy.await_cuts(1)
    assert settled(database, rows)


@pytest.mark.parametrize("where,rows", CUTS)
def test_a_cut_at_a_statement_that_commits_itself(database: Database, proxy: Proxy, where: Where, rows: int) -> None:
    proxy.on_commit(where)
    with Client(database, proxy, autocommit=True) as client:
        client.execute("select n from t")
        with pytest.raises(BROKEN):
            client.execute("insert into t values (1)")
    assert proxy.cuts == 1
    assert settled(database, rows)


def test_only_chosen_commits_are_cut(database: Database, proxy: Proxy) -> None:
    database.execute("create table other (n int)")
    proxy.on_commit("after", touching=r"\bt\b", skip=1)
    with Client(database, proxy) as client:
        for table in ("other", "t", "other"):
            client.execute(f"insert into {table} values (1)")
            client.connection.commit()
        client.execute("insert into t values (2)")
        with pytest.raises(BROKEN):
            client.connection.commit()
    assert (proxy.cuts, count(database)) == (1, 2)
    with Client(database, proxy) as client:
        client.execute("insert into t values (3)")
        client.connection.commit()
    assert count(database) == 3
    assert proxy.statements["insert"] == 5


@pytest.mark.parametrize("where,rows", CUTS)
def test_a_commit_in_a_pipeline_is_seen(
    new_database: Callable[[str], Database], servers: Servers, where: Where, rows: int
) -> None:
    database = new_database("postgres")
    database.execute("create table t (n int)")
    proxy = servers.proxy(database.server)
    proxy.on_commit(where, touching="insert into t")
    with Client(database, proxy) as client:
        connection = client.connection
        assert isinstance(connection, psycopg.Connection)
        with pytest.raises(BROKEN):
            in_pipeline(connection, ["insert into t values (1)", "commit", "select 1"])
    assert proxy.cuts == 1
    assert settled(database, rows)


@pytest.mark.parametrize("prepare", [False, True])
def test_the_end_of_a_pipeline_commits(
    new_database: Callable[[str], Database], servers: Servers, *, prepare: bool
) -> None:
    database = new_database("postgres")
    database.execute("create table t (n int)")
    proxy = servers.proxy(database.server)
    with Client(database, proxy, autocommit=True) as client:
        connection = client.connection
        assert isinstance(connection, psycopg.Connection)
        for _ in range(2):
            connection.execute("insert into t values (0)", prepare=prepare)
        proxy.on_commit("before")
        with pytest.raises(BROKEN):
            in_pipeline(connection, ["insert into t values (0)"] * 3, prepare=prepare)
    assert proxy.cuts == 1
    assert settled(database, 2)


@pytest.mark.parametrize("where,rows", CUTS)
def test_copy_commits_at_its_end(
    new_database: Callable[[str], Database], servers: Servers, where: Where, rows: int
) -> None:
    database = new_database("postgres")
    database.execute("create table t (n int)")
    proxy = servers.proxy(database.server)
    proxy.on_commit(where, touching="copy t")
    with Client(database, proxy, autocommit=True) as client:
        connection = client.connection
        assert isinstance(connection, psycopg.Connection)
        with pytest.raises(BROKEN), connection.cursor() as cursor, cursor.copy("copy t from stdin") as copy:
            copy.write_row([1])
    assert proxy.cuts == 1
    assert settled(database, rows)


def test_cut_refuse_and_go_on(database: Database, proxy: Proxy) -> None:
    with Client(database, proxy) as client:
        assert proxy.cut() == 1
        with pytest.raises(BROKEN):
            client.execute("select 1")
    proxy.refuse()
    with pytest.raises(BROKEN):
        Client(database, proxy)
    proxy.refuse(refusing=False)
    with Client(database, proxy) as client:
        client.execute("select 1")


def test_a_black_hole_keeps_connections(database: Database, proxy: Proxy) -> None:
    with Client(database, proxy) as client:
        proxy.hold(0.2)
        began = time.monotonic()
        client.execute("select 1")
        assert time.monotonic() - began >= 0.19


def test_delay_is_felt(database: Database, proxy: Proxy) -> None:
    with Client(database, proxy) as client:
        proxy.delay_s = 0.05
        began = time.monotonic()
        client.execute("select 1")
        assert time.monotonic() - began >= 0.1


def test_retarget(servers: Servers, database: Database, proxy: Proxy) -> None:
    other = servers.proxy(database.server)
    proxy.target_port = other.port
    with Client(database, proxy) as client:
        client.execute("select 1")
    assert other.statements["select"] == 1


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def test_messages_are_seen_through_any_division_of_the_stream() -> None:
    start = struct.pack(">IHH", 17, 3, 0) + b"user\0me\0\0"
    stream = start + message(b"Q", b"begin\0") + message(b"Q", b"insert into t values (';')\0")
    stream += message(b"Q", b"COMMIT\0")
    for step in (1, 2, 3, 7, len(stream)):
        wire = PostgresWire()
        parts = [part for at in range(0, len(stream), step) for part in wire.from_client(stream[at : at + step])]
        assert b"".join(part.data for part in parts) == stream
        assert [part.statement for part in parts if part.statement][-1] == "COMMIT"
        assert [part.transaction for part in parts if part.commits] == [
            ("begin", "insert into t values (';')", "COMMIT")
        ]


def command(sql: str) -> bytes:
    body = b"\x03" + sql.encode()
    return struct.pack("<I", len(body))[:3] + b"\0" + body


@pytest.mark.parametrize(
    "statements,commits",
    [
        (["set autocommit = 0", "insert into t values (1)", "commit"], [2]),
        (["insert into t values (1)"], [0]),
        (["begin", "update t set n = 1", "rollback", "commit"], [3]),
        (["begin", "rollback to savepoint a", "delete from t", "select 1", "commit"], [4]),
        (["begin", "create table u (n int)"], [1]),
        (["insert into t values (1); commit"], [0]),
        (["select 1", "show tables"], []),
    ],
)
def test_commits_of_mysql_are_told_apart(statements: list[str], commits: list[int]) -> None:
    wire = MysqlWire()
    wire.from_client(struct.pack("<I", 3)[:3] + b"\1abc")
    parts = [part for statement in statements for part in wire.from_client(command(statement))]
    assert [number for number, part in enumerate(parts) if part.commits] == commits


def ok(*, more: bool) -> bytes:
    return b"\0\3\0" + struct.pack("<HH", 8 if more else 0, 0) + b"Rows matched: 3"


def end_mark(*, more: bool) -> bytes:
    return b"\xfe" + struct.pack("<HH", 0, 8 if more else 0)


def test_a_reply_is_whole_with_the_result_of_its_last_statement() -> None:
    results = [ok(more=True), b"\1", b"def", end_mark(more=True), b"\5value", end_mark(more=True), ok(more=False)]
    stream = b"".join(struct.pack("<I", len(one))[:3] + bytes([place]) + one for place, one in enumerate(results))
    for step in (1, 3, 8, len(stream)):
        wire = MysqlWire()
        wire.from_client(struct.pack("<I", 3)[:3] + b"\1abc")
        wire.from_client(command("insert into t values (1); select 1; commit"))
        whole = [wire.from_server(stream[at : at + step]) for at in range(0, len(stream), step)]
        assert whole == [False] * (len(whole) - 1) + [True]


@pytest.mark.parametrize(
    "wire,ask", [(PostgresWire, struct.pack(">II", 8, 80877103)), (MysqlWire, b"\x20\0\0\1" + b"\0" * 32)]
)
def test_tls_is_passed_on_unseen(wire: type[PostgresWire | MysqlWire], ask: bytes) -> None:
    one = wire()
    assert [part.data for part in one.from_client(ask)] == [ask]
    assert one.from_server(b"S")
    hidden = b"\x17\x03\x03 no message of the protocol"
    assert [part.data for part in one.from_client(hidden)] == [hidden]
    assert one.from_server(hidden)


def test_a_client_that_begins_with_tls_at_once_is_passed_on_too() -> None:
    hidden = b"\x16\x03\x01 no message of the protocol"
    parts = MysqlWire().from_client(b"\x20\0\0\1" + b"\0" * 32 + hidden)
    assert b"".join(part.data for part in parts) == b"\x20\0\0\1" + b"\0" * 32 + hidden
