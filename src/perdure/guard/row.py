"""Guards on the application's own rows: the unique business key, and the state check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from perdure.errors import StateMismatch, UsageError
from perdure.guard.faults import busy, meaning
from perdure.guard.link import Guarded, Link
from perdure.guard.statement import MYSQL, Query, Steps, equal, quoted, shared_lock, update_lock

_TRIES: Final = 10
_KEYS_THERE: set[tuple[Any, ...]] = set()
"""Unique keys that MySQL was seen to have: (database, table, columns)."""


@Guarded
def insert(
    connection: Link, table: str, key: Mapping[str, Any], values: Mapping[str, Any] | None = None
) -> Steps[bool]:
    """Insert a row unless there is one with its key. Returns whether it was inserted.

    The table has a unique key of just these columns, for example ``(order_id, step)``: it decides between two that come
    at once. The second waits for the transaction of the first.

    Args:
        connection: the application's connection, with its transaction.
        table: name of the table.
        key: columns of the unique key, with their values.
        values: further columns.

    Raises:
        GuardBusy: another transaction is at it, and the wait was too long. Roll back and try again.
        UsageError: a value of the key is None, or MySQL has no such unique key (other databases refuse by themselves).
    """
    dialect = connection.dialect
    if not key or None in key.values():
        message = f"the key of table {table!r} needs columns with values other than None, not {dict(key)!r}"
        raise UsageError(message)
    columns = {**key, **(values or {})}
    names = ", ".join(quoted(name, dialect) for name in columns)
    text = f"insert into {quoted(table, dialect)} ({names}) values ({', '.join('?' * len(columns))})"
    if dialect == MYSQL:
        yield from _check_key(table, key)
    else:
        text += f" on conflict ({', '.join(quoted(name, dialect) for name in key)}) do nothing"
    try:
        return (yield Query(text, tuple(columns.values()))).affected == 1
    except Exception as error:
        if dialect == MYSQL and meaning(error, dialect) == "duplicate" and (yield from _is_there(table, key)):
            return False
        told = busy(error, f"the row {dict(key)!r} of table {table!r}", dialect)
        if told is None:
            raise
        raise told from error


def _is_there(table: str, key: Mapping[str, Any]) -> Steps[bool]:
    """Whether it is this key that was taken, and not another one of the table."""
    where, values = equal(key, MYSQL)
    for lock in ("", shared_lock(MYSQL)):  # a row that is seen without one need not be waited for
        if (yield Query(f"select 1 from {quoted(table, MYSQL)} where {where}{lock}", values)).rows:
            return True
    return False


def _check_key(table: str, key: Iterable[str]) -> Steps[None]:
    """MySQL has no words for "this key": without one the insert would guard nothing, and nobody would know."""
    schema, _, name = table.rpartition(".")
    database = schema or (yield Query("select database()")).rows[0][0]
    known = (database, name, frozenset(key))
    if known in _KEYS_THERE:
        return
    text = (
        "select index_name, column_name from information_schema.statistics"
        " where table_schema = ? and table_name = ? and non_unique = 0 and sub_part is null"
    )
    found: dict[str, set[str]] = {}
    for index, column in (yield Query(text, (database, name))).rows:
        found.setdefault(str(index), set()).add(str(column))
    if set(key) not in found.values():
        message = f"table {table!r} has no unique key of the columns {', '.join(key)}"
        raise UsageError(message, hint="without one nothing keeps a second row out; create it")
    _KEYS_THERE.add(known)


class Change(NamedTuple):
    """A row's step from one state to the next.

    Attributes:
        table: name of the table.
        where: columns that find the one row, with their values.
        before: columns and the values they must have.
        after: columns and the values they get; one of ``before`` at least gets another one.
    """

    table: str
    where: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@Guarded
def change(
    connection: Link, table: str, where: Mapping[str, Any], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Steps[bool]:
    """Change a row only if it is in the state it is expected in. Returns whether it was changed.

    False means that it was done before: the row is in the state ``after`` already, and nothing was written.

    Args:
        connection: the application's connection, with its transaction.
        table: name of the table.
        where: columns that find the one row, with their values.
        before: columns and the values they must have.
        after: columns and the values they get; one of ``before`` at least gets another one.

    Raises:
        StateMismatch: the row is in neither state, or there is no row.
        GuardBusy: another transaction is at it, and the wait was too long. Roll back and try again.
        UsageError: more than one row was meant (roll back: they were changed), or ``after`` is no other state.
    """
    dialect = connection.dialect
    wanted = Change(table, where, before, after)
    try:
        if (yield from changing(dialect, *wanted)):
            return True
        refused = yield from mismatch(dialect, wanted)
    except Exception as error:
        told = busy(error, f"the row {dict(where)!r} of table {table!r}", dialect)
        if told is None:
            raise
        raise told from error
    if refused.is_after:
        return False
    raise refused


def changing(
    dialect: str, table: str, where: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Steps[bool]:
    """Compare and set; see `change`."""
    if not any(name in after and after[name] != value for name, value in before.items()):
        message = f"a change of table {table!r} from {dict(before)!r} to {dict(after)!r} leaves the state as it is"
        raise UsageError(message, hint="a repeat could not be told from the first; set a column that `before` names")
    if not where or set(where) & set(before):
        message = (
            f"`where` finds the row of table {table!r} and `before` says its state: they need columns of their own"
        )
        raise UsageError(message)
    found, found_values = equal({**where, **before}, dialect)
    sets = ", ".join(f"{quoted(name, dialect)} = ?" for name in after)
    text = f"update {quoted(table, dialect)} set {sets} where {found}"
    state, state_values = equal(where, dialect)
    columns = ", ".join(quoted(name, dialect) for name in before)
    look = f"select {columns} from {quoted(table, dialect)} where {state}{update_lock(dialect)}"
    for _ in range(_TRIES):
        count = (yield Query(text, (*after.values(), *found_values))).affected
        if count > 1:
            message = f"{count} rows of table {table!r} match {dict(where)!r}, where one was meant; roll back"
            raise UsageError(message)
        if count == 1:
            return True
        # Not in the state it was expected in; unless it came into it after the update had looked.
        rows = (yield Query(look, state_values)).rows
        if not rows or any(tuple(before.values()) != row for row in rows):
            return False
    return False


def mismatch(dialect: str, wanted: Change) -> Steps[StateMismatch]:
    """Return the error for a change that did not apply, with the state that the row is in."""
    where, values = equal(wanted.where, dialect)
    columns = ", ".join(quoted(name, dialect) for name in wanted.before)
    text = f"select {columns} from {quoted(wanted.table, dialect)} where {where}{update_lock(dialect)}"
    rows = (yield Query(text, values)).rows
    found = dict(zip(wanted.before, rows[0], strict=True)) if rows else None
    reached = {name: wanted.after.get(name, value) for name, value in wanted.before.items()}
    return StateMismatch(
        wanted.table, dict(wanted.where), expected=dict(wanted.before), found=found, is_after=found == reached
    )


def demanding(dialect: str, wanted: Change) -> Steps[None]:
    """Compare and set, now and by this transaction.

    Raises:
        StateMismatch: the change does not apply, or was made before.
    """
    if not (yield from changing(dialect, *wanted)):
        raise (yield from mismatch(dialect, wanted))
