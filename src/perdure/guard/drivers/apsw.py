"""Connections of ``apsw``, which begins no transaction by itself."""

from __future__ import annotations

from typing import Any

import apsw

from perdure.errors import UsageError
from perdure.guard.savepoint import SavepointSql
from perdure.guard.statement import SQLITE, Query, Request, Result


class ApswLink:
    """See `perdure.guard.link.Link`."""

    dialect = SQLITE
    is_async = False

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._savepoint = SavepointSql()

    def check(self) -> None:
        """See `Link`."""
        if not self._connection.in_transaction:
            message = "the connection commits each statement by itself"
            raise UsageError(message, hint='execute "begin immediate" first')

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        if not isinstance(request, Query):
            for text in self._savepoint.texts(request):
                self._connection.execute(text)
            return Result()
        cursor = self._connection.cursor()
        cursor.row_trace = None
        rows = tuple(cursor.execute(request.text, request.values))
        return Result(self._connection.changes(), rows)

    @property
    def driver(self) -> apsw.Connection:
        """See `Link`."""
        return self._connection

    def begin(self) -> None:
        """See `Link`."""
        self._connection.execute("begin immediate")

    def commit(self) -> None:
        """See `Link`."""
        self._connection.execute("commit")

    def rollback(self) -> None:
        """See `Link`."""
        if self._connection.in_transaction:
            self._connection.execute("rollback")

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


def open_link(connection: Any) -> ApswLink | None:
    """Return the link to a connection, None if it is something else."""
    return ApswLink(connection) if isinstance(connection, apsw.Connection) else None
