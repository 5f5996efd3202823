"""A place for an application's database, and clients of every kind on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.guard.clients import KINDS, Client, Place
from tests.servers.fixtures import DatabaseServer
from tests.servers.postgres import USER

TABLES = (
    "create table orders (id integer primary key, state varchar(20), parcel varchar(40))",
    "create table shipment (order_id int, step varchar(9), number varchar(9) unique, unique (order_id, step))",
    "create table ledger (what varchar(100))",
)
NAMES = (
    "orders", "shipment", "ledger", "perdure_guard", "stock", "taken", "coupon", "counter", "mail",
)  # fmt: skip
NewPlace = Callable[[str], Place]


@pytest.fixture(scope="session")
def server_places(shared_servers: Callable[[str], DatabaseServer]) -> Iterator[NewPlace]:
    """Give a function from a dialect to one database on its server, the same for all tests of the process."""
    made: dict[str, tuple[DatabaseServer, Place]] = {}

    def place(dialect: str) -> Place:
        if dialect not in made:
            server = shared_servers("mariadb" if dialect == "mysql" else "postgres")
            made[dialect] = server, Place(dialect, port=server.port, user=USER, database=server.new_database())
        server, found = made[dialect]
        for name in NAMES:
            server.execute(f"drop table if exists {name}", database=found.database)
        return found

    yield place
    for server, found in made.values():
        server.drop_database(found.database)


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    """Give a function from a dialect to an empty database."""

    def make(dialect: str) -> Place:
        if dialect == "sqlite":
            return Place("sqlite", file=str(tmp_path / "app.db"))
        found: Place = request.getfixturevalue("server_places")(dialect)
        return found

    return make


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, new_place: NewPlace) -> Place:
    return new_place(KINDS[kind][1])


Connect = Callable[[], Client]


@pytest.fixture
def connect(kind: str, place: Place) -> Iterator[Connect]:
    """Give a maker of clients; all are closed at the end."""
    made: list[Client] = []

    def make() -> Client:
        made.append(KINDS[kind][0](place))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Connect) -> Client:
    """Give a client of a database with its tables."""
    client = connect()
    client.create_table()
    with client.transaction():
        for text in TABLES:
            client.execute(text)
    return client
