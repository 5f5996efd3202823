"""What the engine writes in a transaction of the application, where both are in one database of a server.

The statements are those of the engine's own store, for one write and for a connection of any library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.errors import GuardBusy, UsageError
from perdure.guard.faults import busy, meaning
from perdure.guard.statement import MYSQL, POSTGRESQL, Query, Savepoint, Steps, shared_lock
from perdure.model.event import Event
from perdure.model.run import RunRow, Tombstone

if TYPE_CHECKING:
    from perdure.model.write import Create
    from perdure.store.base import Capabilities

_RUN: Final = ", ".join(RunRow._fields)
_EVENT: Final = ", ".join(Event._fields)
_TOMBSTONE: Final = ", ".join(Tombstone._fields)
_TRIES: Final = 10
_DIALECTS: Final = {"postgres": POSTGRESQL, "mysql": MYSQL}


class Tables(NamedTuple):
    """The engine's tables as another connection finds them."""

    dialect: str
    prefix: str
    """Before each table's name: the schema, or on MySQL the database."""


def tables_of(capabilities: Capabilities, dialect: str) -> Tables:
    """Return the engine's tables for a connection with this dialect.

    Raises:
        UsageError: the engine's store is no database of a server, or of another kind than the connection's.
    """
    own = _DIALECTS.get(capabilities.name)
    if own is None or capabilities.tables is None:
        message = f"the engine's database ({capabilities.name}) takes no part in transactions of others"
        raise UsageError(message, hint="this needs an engine on PostgreSQL or MySQL, and a connection to that database")
    if own != dialect:
        message = f"the connection is to {dialect}, and the engine's database is {own}"
        raise UsageError(message, hint="pass a connection to the engine's own database")
    return Tables(dialect, capabilities.tables)


def creating(tables: Tables, create: Create) -> Steps[RunRow | Tombstone | None]:
    """Record a run: None, or what has its id already, and then nothing is written.

    Raises:
        GuardBusy: another transaction has the id, and the wait for it was too long.
        UsageError: the engine's tables are not in this database.
    """
    yield Savepoint.OPEN
    try:
        found = yield from _insert_run(tables, create)
        if found is None:
            for event in create.events:
                yield _insert_event(tables, event)
            for key, value in create.tags:
                yield _insert_tag(tables, create.row.id, key, value)
            if tables.dialect == POSTGRESQL:  # workers are told when the caller commits
                yield Query("select pg_notify(?, ?)", (f"perdure_{tables.prefix[1:-2]}", "joint"))
    except Exception as error:
        with suppress(Exception):
            yield Savepoint.UNDO
        told = busy(error, f"the start of run {create.row.id!r}", tables.dialect) or _missing(tables, error)
        if told is None:
            raise
        raise told from error
    yield Savepoint.UNDO if found is not None else Savepoint.KEEP
    return found


def _insert_run(tables: Tables, create: Create) -> Steps[RunRow | Tombstone | None]:
    row = create.row
    values: tuple[Any, ...] = tuple(row)
    columns = _RUN
    if tables.dialect == MYSQL:
        columns, values = f"{_RUN}, due_queue", (*row, None if row.wake_at is None else row.queue)
    text = f"insert into {tables.prefix}run ({columns}) values ({_marks(tables, values)})"
    if tables.dialect == POSTGRESQL:
        text += " on conflict (id) do nothing"
    for _ in range(_TRIES):
        if (yield from _is_inserted(tables, Query(text, _bound(tables, values)))):
            # After the insert, which waits for a purge under way.
            gone = yield Query(f"select {_TOMBSTONE} from {tables.prefix}request where run_id = ?", (row.id,))
            return Tombstone(*gone.rows[0]) if gone.rows else None
        # On MySQL a wait for a worker that has the row in hand may end as a deadlock: only if need be.
        for lock in dict.fromkeys(("", shared_lock(tables.dialect))):
            found = yield Query(f"select {_RUN} from {tables.prefix}run where id = ?{lock}", (row.id,))
            if found.rows:
                return RunRow(*found.rows[0])
    message = f"run {row.id!r} is there and is not: it is purged over and over"
    raise GuardBusy(message)


def _is_inserted(tables: Tables, insert: Query) -> Steps[bool]:
    try:
        return (yield insert).affected == 1
    except Exception as error:
        if tables.dialect != MYSQL or meaning(error, MYSQL) != "duplicate":
            raise
        return False


def _insert_event(tables: Tables, event: Event) -> Query:
    text = f"insert into {tables.prefix}event ({_EVENT}) values ({_marks(tables, event)})"
    return Query(text, _bound(tables, event))


def _insert_tag(tables: Tables, run_id: str, key: str, value: str) -> Query:
    if tables.dialect == MYSQL:
        number = f"(select no from {tables.prefix}run where id = ?)"
        return Query(
            f"insert into {tables.prefix}tag (`key`, value, run_no) values (?, ?, {number})", (key, value, run_id)
        )
    return Query(f"insert into {tables.prefix}tag (key, value, run_id) values (?, ?, ?)", (key, value, run_id))


def _marks(tables: Tables, values: Sequence[Any]) -> str:
    """On MySQL bytes are sent as hexadecimal text: not every driver there can send bytes."""
    is_hex = tables.dialect == MYSQL
    return ", ".join("unhex(?)" if is_hex and isinstance(value, bytes) else "?" for value in values)


def _bound(tables: Tables, values: Sequence[Any]) -> tuple[Any, ...]:
    if tables.dialect != MYSQL:
        return tuple(values)
    return tuple(value.hex() if isinstance(value, bytes) else value for value in values)


def _missing(tables: Tables, error: Exception) -> UsageError | None:
    if meaning(error, tables.dialect) != "missing":
        return None
    return UsageError(
        f"the engine's tables ({tables.prefix}run, ...) are not in the connection's database",
        hint="pass a connection to the engine's own database",
    )
