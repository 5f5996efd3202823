"""A till in the engine's own database: its transactional steps, over any connection, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Database
from tests.guard.clients import KINDS, Place
from tests.guard.test_transactional import ASYNC, BLOCKING, KIND, WHERE, connect, write
from tests.servers import fixtures
from tests.servers.postgres import USER

ON_SERVERS = sorted(
    kind for kind in BLOCKING | ASYNC if not kind.endswith("sqlite") and kind not in ("sqlite3", "apsw")
)
every = pytest.mark.parametrize("kind", ON_SERVERS)
plain = pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
ACTS: list[Callable[[Any], Any]] = []
"""What the step does with its connection, beside its own."""
CALLS: list[str] = []

app: Database[Any] = Database(connect)


def dialect_of(kind: str) -> str:
    return KINDS[kind][1] if kind in KINDS else kind.rpartition("-")[2]


@perdure.step(mode="transaction", database=app)
def take(what: str) -> str:
    CALLS.append(what)
    write(app.connection, "insert into ledger values (?)", what)
    for act in ACTS:
        act(app.connection)
    return f"{what} {len(CALLS)}"


@perdure.step(mode="transaction", database=app)
async def take_async(what: str) -> str:
    CALLS.append(what)
    await write(app.connection, "insert into ledger values (?)", what)
    for act in ACTS:
        await act(app.connection)
    return f"{what} {len(CALLS)}"


async def taken(what: str) -> str:
    return await (take_async(what) if KIND[0] in ASYNC else take.aio(what))


@perdure.workflow(name="own")
async def flow(what: str) -> str:
    return await taken(what)


def prepare(database: fixtures.Database, kind: str) -> None:
    """Have the steps use connections of a kind to this database, from the beginning."""
    WHERE[:] = [Place(dialect_of(kind), port=database.server.port, user=USER, database=database.name)]
    KIND[:] = [kind]
    ACTS.clear()
    CALLS.clear()
    app.known.clear()
    database.execute("create table ledger (what varchar(100))")


def ledger(database: fixtures.Database) -> list[str]:
    return [str(row[0]) for row in database.execute("select what from ledger")]


def tables(database: fixtures.Database) -> set[str]:
    rows = database.execute(
        "select table_name from information_schema.tables where table_schema in ('public', %s)", (database.name,)
    )
    return {str(row[0]) for row in rows}


async def types(engine: perdure.Engine, run_id: str) -> list[str]:
    return [event.type for event in await engine.get(run_id).history()]
