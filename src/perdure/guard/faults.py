"""What a driver's error means to a guard: known by number, never by its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from perdure.errors import GuardBusy, PerdureError
from perdure.guard.statement import MYSQL, POSTGRESQL

Meaning = Literal["busy", "duplicate", "ended", "missing", "orphan"]

_POSTGRESQL: dict[str, Meaning] = {
    "40001": "busy",  # could not serialize access
    "40P01": "busy",  # deadlock
    "55P03": "busy",  # lock timeout
    "23505": "duplicate",
    "42P01": "missing",
    "42P07": "duplicate",  # a table made by somebody else meanwhile
    "23503": "orphan",  # what it belongs to is not there
    "3B001": "ended",  # no such savepoint
    "25P01": "ended",  # no transaction
}
_MYSQL: dict[int, Meaning] = {
    1020: "busy",  # MariaDB with snapshot isolation: the row has changed since the snapshot
    1205: "busy",  # lock wait timeout; only the statement was rolled back
    1213: "busy",  # deadlock; the whole transaction was rolled back
    3572: "busy",  # nowait
    1062: "duplicate",
    1146: "missing",
    1216: "orphan",  # what it belongs to is not there
    1452: "orphan",
    1305: "ended",  # no such savepoint
}
_SQLITE: dict[int, Meaning] = {5: "busy", 6: "busy"}
_DEEPEST = 4


def meaning(error: BaseException, dialect: str) -> Meaning | None:
    """Return what an error of a statement means, or None for any other."""
    for each in _layers(error):
        if dialect == POSTGRESQL:
            code = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
            found = _POSTGRESQL.get(str(code))
        elif dialect == MYSQL:
            number = each.args[0] if each.args else None
            found = _MYSQL.get(number) if isinstance(number, int) else None
        else:
            result = _sqlite_code(each)
            found = None if result is None else _SQLITE.get(result & 0xFF)
        if found is not None:
            return found
    return None


def busy(error: Exception, what: str, dialect: str) -> PerdureError | None:
    """Return what to raise if somebody else was in the way, else None."""
    if meaning(error, dialect) != "busy":
        return None
    return GuardBusy(f"{what} waits for another transaction that is at it: {error}")


def _layers(error: BaseException) -> Iterator[Any]:
    """Give the error and what it wraps: SQLAlchemy keeps the driver's own in ``orig``, Django as its cause."""
    found: BaseException | None = error
    for _ in range(_DEEPEST):
        if found is None:
            return
        yield found
        inner = getattr(found, "orig", None)
        found = inner if isinstance(inner, BaseException) else found.__cause__


def _sqlite_code(error: Any) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)  # of sqlite3
    if code is None:
        code = getattr(error, "result", None)  # of apsw
    return code if isinstance(code, int) else None
