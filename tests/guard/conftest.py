"""A place for an application's database, and clients of every kind on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.guard.clients import KINDS, Client, Place

TABLES = (
    "create table orders (id integer primary key, state varchar(20), parcel varchar(40))",
    "create table shipment (order_id integer not null, step varchar(20) not null, number varchar(40) unique,"
    " unique (order_id, step))",
    "create table ledger (what varchar(100))",
)
NAMES = ("orders", "shipment", "ledger", "perdure_guard")


def new_place(dialect: str, folder: Path) -> Place:
    if dialect == "sqlite":
        return Place("sqlite", file=str(folder / "app.db"))
    if dialect == "postgresql":
        place = Place("postgresql", port=int(os.environ["PG"]), user="postgres", database="postgres")
        with psycopg.connect(place.postgresql(), autocommit=True) as connection:
            for name in NAMES:
                connection.execute(f"drop table if exists {name}")  # type: ignore[call-overload]
        return place
    place = Place("mysql", port=int(os.environ["MY"]), user="root", database="guards")
    with closing(pymysql.connect(**place.mysql())) as connection, connection.cursor() as cursor:
        for name in NAMES:
            cursor.execute(f"drop table if exists {name}")
    return place


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Place:
    return new_place(KINDS[kind][1], tmp_path)


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
