"""Fixtures: databases on real servers.

The servers behind `new_database` are started when the first test asks for one, and shared by all tests of the process;
each test gets a database of its own. A test that kills or stops a server, or wants it set up in another way, starts its
own with `servers`. A server that is not installed fails the test, and the one line of the failure says what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from perdure.store.base import StoreOptions, open_store
from perdure.store.server import claim as claiming
from tests.servers import programs
from tests.servers.certificate import Certificate, make_certificate
from tests.servers.mariadb import Mariadb
from tests.servers.pgbouncer import Pgbouncer
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.servers.server import Server

DatabaseServer = Postgres | Mariadb
AServer = TypeVar("AServer", bound=Server)
KINDS = ("mariadb", "postgres", "postgres18")

# Many tests make one claim and expect its result. On a busy machine their process may stand still for longer than the
# server waits for the rest of a claim, after which it is another's turn, as it should be.
LONGEST_CLAIM_MS = claiming._LONGEST_MS
claiming._LONGEST_MS = "20000"


@dataclass(frozen=True, slots=True)
class Database:
    """One database, used by one test."""

    server: DatabaseServer
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def execute(self, statement: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Execute one statement by itself, with all rights. Give its rows."""
        return self.server.execute(statement, parameters, database=self.name)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read perdure's tables, by their plain names and with question marks for values. Give the rows."""
        statement = query.replace("%", "%%").replace("?", "%s") if values else query
        if isinstance(self.server, Postgres):
            return self.server.execute(statement, values or None, database=self.name, schema="perdure")
        return self.server.execute(statement, values or None, database=self.name)

    @property
    def kind(self) -> str:
        return "postgres" if isinstance(self.server, Postgres) else "mariadb"

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """Hold a snapshot of the store, as a transaction does that somebody has left open."""
        connection: Any = self.server.connect(self.name)
        with connection:
            cursor = connection.cursor()
            if self.kind == "postgres":
                cursor.execute("begin isolation level repeatable read")
                cursor.execute("select count(*) from perdure.run")
            else:
                cursor.execute("start transaction with consistent snapshot")
                cursor.execute("select count(*) from run")
            yield
            connection.rollback()

    def drop(self) -> None:
        self.server.drop_database(self.name)


class Servers:
    """Starts servers, and ends at its own end what it started."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], None]] = []

    def start(self, kind: str, **options: Any) -> DatabaseServer:
        """Start one of `KINDS`, with the options of its class."""
        match kind:
            case "postgres":
                return self.postgres(**options)
            case "postgres18":
                return self.postgres18(**options)
            case "mariadb":
                return self.mariadb(**options)
        raise AssertionError(kind)

    def postgres(self, **options: Any) -> Postgres:
        """Start the machine's own PostgreSQL."""
        return self._start(lambda: Postgres(programs.postgres(), **options))

    def postgres18(self, **options: Any) -> Postgres:
        """Start PostgreSQL 18. It has no TLS."""
        return self._start(lambda: Postgres(programs.postgres_18(), **options))

    def mariadb(self, **options: Any) -> Mariadb:
        return self._start(lambda: Mariadb(**options))

    def pgbouncer(self, server: Postgres, **options: Any) -> Pgbouncer:
        return self._start(lambda: Pgbouncer(server, **options))

    def mariadb_standby(self, server: Mariadb) -> Mariadb:
        """Start a second server that follows the first one, which waits for it."""
        standby = server.new_standby()
        self._closers.append(standby.close)
        return standby

    def standby(self, server: Postgres, *, synchronous: bool = True) -> Postgres:
        """Start a second server that follows the first one."""
        standby = server.new_standby(synchronous=synchronous)
        self._closers.append(standby.close)
        return standby

    def proxy(self, server: DatabaseServer) -> Proxy:
        """Start a proxy in front of a server, to cut connections at chosen places."""
        proxy = Proxy(server.port, "mysql" if isinstance(server, Mariadb) else "postgres")
        self._closers.append(proxy.close)
        return proxy

    def _start(self, make: Callable[[], AServer]) -> AServer:
        try:
            server = make()
        except programs.MissingProgramError as error:
            pytest.fail(str(error), pytrace=False)
        self._closers.append(server.close)
        server.start()
        return server

    def close(self) -> None:
        while self._closers:
            self._closers.pop()()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what servers have logged meanwhile: why one ended a connection, for instance."""
    report = yield
    if report.failed:
        for server in Server.there:
            if server.said_since(call.start):
                report.sections.append((f"stdout of {type(server).__name__} {server.port}", server.log[-4000:]))
    return report


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[Callable[[str], DatabaseServer]]:
    """Give a function from a kind to the one server of that kind that all tests of this process share."""
    starter, started = Servers(), dict[str, DatabaseServer]()

    def shared(kind: str) -> DatabaseServer:
        if kind not in started:
            server = started[kind] = starter.start(kind)
            if isinstance(server, Postgres):
                server.is_shared = True
        return started[kind]

    yield shared
    starter.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Give a starter of servers of the test's own."""
    starter = Servers()
    yield starter
    starter.close()


@pytest.fixture
def new_database(shared_servers: Callable[[str], DatabaseServer]) -> Iterator[Callable[..., Database]]:
    """Give a function from a kind to a new, empty database on the shared server of that kind.

    Where that is PostgreSQL, the function also takes the name of a database to copy.
    """
    made: list[Database] = []

    def make(kind: str, *template: str) -> Database:
        server = shared_servers(kind)
        made.append(Database(server, server.new_database(*template)))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture(scope="session")
def template(shared_servers: Callable[[str], DatabaseServer]) -> Callable[[str], str]:
    """Give a function from a kind of PostgreSQL to the name of a database in which a store was opened, and no more."""

    @cache
    def made(kind: str) -> str:
        server = shared_servers(kind)
        name = server.new_database()
        store = open_store(server.url(name), StoreOptions())
        store.open()
        store.close()
        return name

    return made


@pytest.fixture
def new_store(new_database: Callable[..., Database], template: Callable[[str], str]) -> Callable[[str], Database]:
    """Give a function from a kind to a database for an empty store. It may have its tables already.

    On PostgreSQL it has: to make them takes longer than most tests.
    """

    def make(kind: str) -> Database:
        return new_database(kind) if kind == "mariadb" else new_database(kind, template(kind))

    return make


EMPTY = """do $$
declare
    one text;
begin
    set local session_replication_role = replica;  -- what no program may delete, no trigger keeps here
    for one in select tablename from pg_tables where schemaname = 'perdure' and tablename <> 'schema_migration'
    loop
        execute format('delete from perdure.%I', one);
    end loop;
    insert into perdure.meta (id, version_count) values (1, 0);
    perform setval(pg_get_serial_sequence('perdure.run', 'no'), 1, false);
end $$"""


@pytest.fixture(scope="session")
def emptied(
    shared_servers: Callable[[str], DatabaseServer], template: Callable[[str], str]
) -> Iterator[Callable[[str], Database]]:
    """Give a function from a kind of PostgreSQL to one database for all tests that write through stores alone.

    Its store is emptied each time: a test takes less than half of what it takes with a new database.
    """
    made: dict[str, tuple[Database, psycopg.Connection[Any]]] = {}

    def empty(kind: str) -> Database:
        if kind not in made:
            server = shared_servers(kind)
            assert isinstance(server, Postgres)
            database = Database(server, server.new_database(template(kind)))
            made[kind] = database, server.connect(database.name)
        database, connection = made[kind]
        connection.execute(EMPTY)
        return database

    yield empty
    for _, connection in made.values():
        connection.close()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    """Give each kind of database that outlives a process."""
    return str(request.param)


@pytest.fixture
def url(kind: str, new_store: Callable[[str], Database], tmp_path: Path) -> str:
    """Give the URL of an empty store of a kind."""
    return f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else new_store(kind).url


@pytest.fixture
def postgres_db(new_database: Callable[[str], Database]) -> Database:
    """Give an empty database on the machine's own PostgreSQL."""
    return new_database("postgres")


@pytest.fixture
def postgres18_db(new_database: Callable[[str], Database]) -> Database:
    """Give an empty database on PostgreSQL 18."""
    return new_database("postgres18")


@pytest.fixture
def mariadb_db(new_database: Callable[[str], Database]) -> Database:
    """Give an empty database on MariaDB."""
    return new_database("mariadb")


@pytest.fixture(scope="session")
def certificate() -> Certificate:
    """Give a certificate for servers on loopback."""
    return make_certificate()
