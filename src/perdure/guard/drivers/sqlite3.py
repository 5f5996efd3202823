"""Connections of the standard library's ``sqlite3``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from perdure.errors import UsageError
from perdure.guard.savepoint import SavepointSql
from perdure.guard.statement import SQLITE, Query, Request, Result

AUTOCOMMIT = "the connection commits each statement by itself"
HINT = 'execute "begin immediate" first'


class Sqlite3Link:
    """See `perdure.guard.link.Link`."""

    dialect = SQLITE
    is_async = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._savepoint = SavepointSql()

    def check(self) -> None:
        """See `Link`. Where the module would begin before the first write, begin now, with the lock of writers.

        A savepoint outside a transaction would be one by itself, and commit when it is released. And a transaction
        that has read before it asks for the lock is refused at once when somebody else has written meanwhile.
        """
        connection = self._connection
        if connection.in_transaction:
            return
        if connection.isolation_level is None or getattr(connection, "autocommit", -1) is True:
            raise UsageError(AUTOCOMMIT, hint=HINT)
        connection.execute("begin immediate")

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        if not isinstance(request, Query):
            for text in self._savepoint.texts(request):
                self._connection.execute(text)
            return Result()
        with closing(self._connection.cursor()) as cursor:
            cursor.row_factory = None
            cursor.execute(request.text, request.values)
            rows = tuple(cursor.fetchall())
            return Result(max(cursor.rowcount, 0), rows)

    @property
    def driver(self) -> sqlite3.Connection:
        """See `Link`."""
        return self._connection

    def begin(self) -> None:
        """See `Link`."""
        if not self._connection.in_transaction:
            self._connection.execute("begin immediate")

    def commit(self) -> None:
        """See `Link`."""
        self._connection.execute("commit")

    def rollback(self) -> None:
        """See `Link`."""
        self._connection.rollback()

    def close(self) -> None:
        """See `Link`."""
        self._connection.close()

    def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        if self._connection.in_transaction:
            message = "a table is created outside of a transaction"
            raise UsageError(message, hint="commit first")
        for text in statements:
            self._connection.execute(text)
        self._connection.commit()


def open_link(connection: Any) -> Sqlite3Link | None:
    """Return the link to a connection, None if it is something else."""
    return Sqlite3Link(connection) if isinstance(connection, sqlite3.Connection) else None
