"""What a guard asks of a connection, as data: the rules above know no driver, the drivers below know no rule.

A guard is a generator: it yields a `Request`, is sent the `Result` (or thrown the driver's error), and returns what it
found out. So each rule exists once for blocking and for async connections.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from perdure.errors import UsageError

R = TypeVar("R")

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
"""MariaDB too."""

_NAME = re.compile(r"[^\W\d]\w*")


class Query(NamedTuple):
    """One statement. ``?`` stands for a value, whatever the driver writes for it; nothing else in it is a ``?``."""

    text: str
    values: tuple[Any, ...] = ()


class Savepoint(Enum):
    """What can be done with a savepoint; a guard has one open at most."""

    OPEN = "savepoint"
    KEEP = "release savepoint"
    UNDO = "rollback to savepoint"
    """And let go of it."""


class Result(NamedTuple):
    """What the database answered.

    Attributes:
        affected: rows inserted or changed.
        rows: rows read.
    """

    affected: int = 0
    rows: tuple[tuple[Any, ...], ...] = ()


Request = Query | Savepoint
Steps = Generator[Request, Result, R]
NOTHING: Final = Result()


def quoted(name: str, dialect: str) -> str:
    """Return the name of a table or column as SQL; a table may have its schema before it.

    Raises:
        UsageError: it is not made of letters, digits and underscores.
    """
    parts = name.split(".") if isinstance(name, str) else [""]
    if not all(_NAME.fullmatch(part) for part in parts):
        message = f"not the name of a table or column: {name!r}"
        raise UsageError(message, hint="use letters, digits and underscores, with a dot after a schema's name")
    # SQLite reads "x" as a text where there is no column x; `x` is a name in any case.
    mark = '"' if dialect == POSTGRESQL else "`"
    return ".".join(f"{mark}{part}{mark}" for part in parts)


def equal(columns: Mapping[str, Any], dialect: str) -> tuple[str, tuple[Any, ...]]:
    """Return the condition that each column has its value, and the values it takes."""
    texts = [f"{quoted(name, dialect)} {'is null' if value is None else '= ?'}" for name, value in columns.items()]
    return " and ".join(texts), tuple(value for value in columns.values() if value is not None)


def shared_lock(dialect: str) -> str:
    """Return the clause that reads what was committed last, not an older snapshot, and holds it.

    PostgreSQL needs none for a row nobody changes: under READ COMMITTED each statement sees what is committed.
    """
    return " lock in share mode" if dialect == MYSQL else ""


def update_lock(dialect: str) -> str:
    """Return the clause that waits for whoever changes the row, reads what it is then, and holds it."""
    return "" if dialect == SQLITE else " for update"
