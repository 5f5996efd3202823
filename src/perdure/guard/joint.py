"""What the engine writes in a transaction of the application, where both are in one database of a server.

The statements are those of the engine's own store, for one write and for a connection of any library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.errors import GuardBusy, LeaseLost, UsageError
from perdure.guard.faults import busy, meaning
from perdure.guard.statement import MYSQL, POSTGRESQL, Query, Savepoint, Steps, shared_lock
from perdure.model.event import Event
from perdure.model.run import RunRow, Tombstone
from perdure.model.status import TERMINAL
from perdure.model.write import Outdated

if TYPE_CHECKING:
    from perdure.model.write import Create
    from perdure.store.base import Capabilities

_RUN: Final = ", ".join(RunRow._fields)
_EVENT: Final = ", ".join(Event._fields)
_TOMBSTONE: Final = ", ".join(Tombstone._fields)
_TRIES: Final = 10
_SILENCE_S: Final = 5
"""How long a transaction that holds a place in a log may be at rest."""
_LIMITS: Final = (
    f"set_config('idle_in_transaction_session_timeout', '{_SILENCE_S}s', true), "
    "set_config('synchronous_commit', case when current_setting('synchronous_commit') in ('off', 'local') then 'on' "
    "else current_setting('synchronous_commit') end, true)"
)
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


def creating(tables: Tables, create: Create) -> Steps[RunRow | Tombstone | Outdated | None]:
    """Record a run and return None, or what stands in the way; then nothing is written.

    That is the run that has its id or deduplication key, what a purged one left, or that its version is out of date.

    Raises:
        GuardBusy: another transaction has the id or the key, and the wait for it was too long.
        UsageError: the engine's tables are not in this database.
    """
    yield Savepoint.OPEN
    try:
        found: RunRow | Tombstone | Outdated | None = yield from _insert_run(tables, create)
        if found is None and create.deduplication_key is not None:
            found = yield from _take_key(tables, create, create.deduplication_key)
        if found is None and create.version_count is not None:
            found = yield from _check_version(tables, create.version_count)
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


def _check_version(tables: Tables, version_count: int) -> Steps[Outdated | None]:
    """Return that more has changed than the version was chosen by; a transaction that sees less is none the worse."""
    rows = (yield Query(f"select version_count from {tables.prefix}meta where id = 1")).rows
    return None if int(rows[0][0]) <= version_count else Outdated(int(rows[0][0]))


def appending(tables: Tables, event: Event) -> Steps[None]:
    """Continue a run's log by one event, whose predecessor is known to be there; it is committed next.

    From here on the run waits for this transaction. So the server ends it if the client falls silent, and its commit is
    as durable as those of the engine.

    Raises:
        GuardBusy: another transaction was in the way.
        LeaseLost: its place is taken, or its run gone: another worker has had it.
    """
    if tables.dialect == MYSQL:
        yield Query(f"set @perdure_wait = @@session.wait_timeout, session wait_timeout = {_SILENCE_S}")
    insert = _insert_event(tables, event)
    if tables.dialect == POSTGRESQL:
        insert = insert._replace(text=f"{insert.text} returning {_LIMITS}")
    try:
        yield insert
    except Exception as error:
        if meaning(error, tables.dialect) in ("duplicate", "orphan"):
            message = f"another worker has run {event.run_id!r} by now; the step's transaction was rolled back"
            raise LeaseLost(message, run_id=event.run_id) from error
        told = busy(error, f"the end of step {event.name!r}", tables.dialect)
        if told is None:
            raise
        raise told from error


def leaving(tables: Tables) -> Steps[None]:
    """Give a connection back as it was before `appending`, where that does not end with the transaction."""
    if tables.dialect == MYSQL:
        with suppress(Exception):
            yield Query("set session wait_timeout = coalesce(@perdure_wait, @@global.wait_timeout)")


def author(tables: Tables, event: Event) -> Steps[int | None]:
    """Return who wrote an event's place in the log, as of now."""
    text = f"select commit_id from {tables.prefix}event where run_id = ? and seq = ?{shared_lock(tables.dialect)}"
    rows = (yield Query(text, (event.run_id, event.seq))).rows
    return int(rows[0][0]) if rows else None


def marking(dialect: str, mark: int) -> Steps[None]:
    """Take a lock that the engine's store sees (`perdure.store.base.Joinable.sees`) if this is its database."""
    if dialect == MYSQL:
        yield Query("select get_lock(concat('perdure_', ?), 0)", (mark,))
    else:
        yield Query("select pg_try_advisory_xact_lock(?)", (mark,))


def unmarking(dialect: str, mark: int) -> Steps[None]:
    """Let go of the lock, where it does not end with the transaction."""
    if dialect == MYSQL:
        yield Query("select release_lock(concat('perdure_', ?))", (mark,))


def may_append(tables: Tables) -> Steps[bool]:
    """Whether the connection has the rights to continue logs. After a refusal the transaction can only be undone."""
    columns = ", ".join(Event._fields)
    log = f"{tables.prefix}event"
    try:
        yield Query(f"insert into {log} ({columns}) select {columns} from {log} where 1 = 0")
    except Exception:  # noqa: BLE001 - whatever it lacks
        return False
    return True


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
        found = yield from _run_of(tables, row.id)
        if found is not None:
            return found
    message = f"run {row.id!r} is there and is not: it is purged over and over"
    raise GuardBusy(message)


def _run_of(tables: Tables, run_id: str) -> Steps[RunRow | None]:
    # On MySQL a wait for a worker that has the row in hand may end as a deadlock: only if need be.
    for lock in dict.fromkeys(("", shared_lock(tables.dialect))):
        found = yield Query(f"select {_RUN} from {tables.prefix}run where id = ?{lock}", (run_id,))
        if found.rows:
            return RunRow(*found.rows[0])
    return None


def _take_key(tables: Tables, create: Create, key: str) -> Steps[RunRow | None]:
    """Give the run its deduplication key, or return the run that has it and has not ended.

    A key that is taken in another transaction is waited for.
    """
    place, run_id = (create.row.queue, key), create.row.id
    keys = f"{tables.prefix}deduplication"
    name = "`key`" if tables.dialect == MYSQL else "key"
    insert = f"insert into {keys} (queue, {name}, run_id) values (?, ?, ?)"
    if tables.dialect == POSTGRESQL:
        insert += " on conflict (queue, key) do nothing"
    where = f"where queue = ? and {name} = ?"
    for _ in range(_TRIES):
        if (yield from _is_inserted(tables, Query(insert, (*place, run_id)))):
            return None
        holders = (yield Query(f"select run_id from {keys} {where}{shared_lock(tables.dialect)}", place)).rows
        if not holders:
            continue
        (holder,) = holders[0]
        found = yield from _run_of(tables, holder)
        if found is not None and found.status not in TERMINAL:
            return found
        freed = yield Query(f"update {keys} set run_id = ? {where} and run_id = ?", (run_id, *place, holder))
        if freed.affected == 1:
            return None
    message = f"deduplication key {key!r} is taken and let go over and over"
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
