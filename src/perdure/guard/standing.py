"""Where a database of transactional steps stands to the engine's: in it, beside it, or in its way.

Found out once for each engine of a process, by asking the servers: a lock that one connection takes is seen by another
one if both are to the same database. Addresses do not tell.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from perdure.errors import UsageError
from perdure.guard.attempted import Attempted
from perdure.guard.joint import Tables, marking, may_append, tables_of, unmarking
from perdure.guard.link import Link, run, run_async
from perdure.guard.statement import MYSQL, POSTGRESQL, SQLITE, Query, Steps
from perdure.guard.table import create_table

if TYPE_CHECKING:
    from perdure.store.base import Joinable

logger: logging.Logger = logging.getLogger("perdure.step")
_IS_THERE: Final = {
    POSTGRESQL: "select to_regclass('perdure_guard') is not null",
    MYSQL: "select count(*) from information_schema.tables "
    "where table_schema = database() and table_name = 'perdure_guard'",
}


class Standing(NamedTuple):
    """Where a database stands."""

    tables: Tables | None
    """The engine's tables, if its connections may write there."""
    keyed: bool
    """Whether it has a table of requests: a worker that was refused there may have left a result in it."""


APART: Final = Standing(None, keyed=True)


def standing(attempt: Attempted) -> Standing:
    """Return where the step's database stands. Beside the engine's, a table of requests is there afterwards.

    Raises:
        UsageError: it is the engine's own file, where user code must not hold the lock of writers.
    """
    known, store = attempt.database.known, attempt.scope.store
    found: Standing | None = known.get(store)
    if found is not None:
        return found
    with attempt.database.opened() as (over, connection):
        found, tables = APART, _tables(store, over)
        if tables is not None:
            mark = random.getrandbits(62)
            over.begin()
            run(over, marking(over.dialect, mark))
            if cast("Joinable", store).sees(mark):
                found = run(over, _inside(attempt, tables))
            run(over, unmarking(over.dialect, mark))
        else:
            run(over, _outside(attempt, over.dialect))
        over.rollback()
        if found is APART:
            create_table(connection)
    known[store] = found
    return found


async def standing_async(attempt: Attempted) -> Standing:
    """Do as `standing`, over async connections."""
    known, store = attempt.database.known, attempt.scope.store
    found: Standing | None = known.get(store)
    if found is not None:
        return found
    async with attempt.database.opened_async() as (over, connection):
        found, tables = APART, _tables(store, over)
        if tables is not None:
            mark = random.getrandbits(62)
            await cast("Awaitable[None]", over.begin())
            await run_async(over, marking(over.dialect, mark))
            if await asyncio.to_thread(cast("Joinable", store).sees, mark):
                found = await run_async(over, _inside(attempt, tables))
            await run_async(over, unmarking(over.dialect, mark))
        else:
            await run_async(over, _outside(attempt, over.dialect))
        await cast("Awaitable[None]", over.rollback())
        if found is APART:
            await create_table.aio(connection)
    known[store] = found
    return found


def _tables(store: Any, over: Link) -> Tables | None:
    try:
        return tables_of(store.capabilities, over.dialect)
    except UsageError:
        return None


def _inside(attempt: Attempted, tables: Tables) -> Steps[Standing]:
    """Look what can be done in the engine's own database."""
    keyed = bool((yield Query(_IS_THERE[tables.dialect])).rows[0][0])
    if (yield from may_append(tables)):
        return Standing(tables, keyed)
    logger.warning(
        "step %r writes to the engine's database, but its user may not read and insert into %sevent: "
        "its results are kept in a table of requests, at the cost of a second commit", attempt.scope.name, tables.prefix
    )  # fmt: skip
    return APART


def _outside(attempt: Attempted, dialect: str) -> Steps[None]:
    """See that it is not the engine's own file.

    Raises:
        UsageError: it is.
    """
    own = attempt.scope.store.capabilities.file
    if dialect != SQLITE or own is None:
        return
    for _, _, file in (yield Query("pragma database_list")).rows:
        if file and Path(file).exists() and Path(own).samefile(file):
            message = f"step {attempt.scope.name!r} would be a transaction in the engine's own SQLite file"
            raise UsageError(message, hint="keep the application's tables in a file of their own")
