"""Keeps a function from ending the transaction it is called in, as far as the driver lets that be seen.

What cannot be seen here (``execute("commit")`` on PostgreSQL) is noticed afterwards, when the savepoint is gone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import apsw

from perdure.errors import UsageError

_METHODS: Final = ("commit", "rollback", "begin")
_IS_COMMENT = re.compile(r"\s*(/\*.*?\*/\s*|--[^\n]*\n\s*|#[^\n]*\n\s*)*", re.DOTALL)
_ENDS = re.compile(
    r"(commit|begin|start\s+transaction|rollback(?!\s+(work\s+)?to\b)|set\s+autocommit"
    r"|(alter|create|drop)(?!\s+temporary\s+table\b)|truncate|rename|grant|revoke|lock\s+tables?|unlock|analyze|optimize|repair)\b",
    re.IGNORECASE,
)
"""What begins or ends a transaction on MySQL, or commits one on the way."""


def _refuse(what: str) -> NoReturn:
    message = f"{what} would end the transaction of a step, which belongs to the engine"
    raise UsageError(message, hint="return from the step to commit, raise to roll back")


@contextmanager
def restrained(driver: Any) -> Iterator[None]:
    """Refuse, inside the block, what would end the transaction of a driver's connection.

    Raises:
        UsageError: in the block, by what tries to.
    """
    if isinstance(driver, sqlite3.Connection | apsw.Connection):
        with _authorized(driver):
            yield
        return
    before = {name: driver.__dict__.get(name) for name in (*_METHODS, "query")}
    for name in _METHODS:
        if hasattr(driver, name):
            setattr(driver, name, _refusing(name))
    if type(driver).__module__.partition(".")[0] in ("pymysql", "aiomysql"):
        driver.query = _checking(driver.query)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                setattr(driver, name, value)
            else:
                driver.__dict__.pop(name, None)


@contextmanager
def _authorized(driver: sqlite3.Connection | apsw.Connection) -> Iterator[None]:
    refused: list[str] = []

    def decide(action: int, what: str | None, *_: object) -> int:
        if action != apsw.SQLITE_TRANSACTION:
            return apsw.SQLITE_OK
        refused.append(str(what).lower())
        return apsw.SQLITE_DENY

    driver.set_authorizer(decide)
    try:
        yield
    except Exception as error:
        if not refused:
            raise
        try:
            _refuse(refused[0])
        except UsageError as told:
            raise told from error
    finally:
        driver.set_authorizer(None)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        _refuse(f"{name}()")

    return refuse


def _checking(query: Callable[..., Any]) -> Callable[..., Any]:
    def check(sql: str | bytes, *args: Any, **kwargs: Any) -> Any:
        text = sql.decode("utf-8", "replace") if isinstance(sql, bytes | bytearray) else sql
        start = _IS_COMMENT.match(text)
        found = _ENDS.match(text, start.end() if start else 0)
        if found:
            _refuse(f"`{found[1].lower()}`")
        return query(sql, *args, **kwargs)

    return check
