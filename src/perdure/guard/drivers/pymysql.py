"""Connections of ``PyMySQL``, to MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor

from perdure.errors import UsageError
from perdure.guard.savepoint import SavepointSql
from perdure.guard.statement import MYSQL, Query, Request, Result


def in_transaction(connection: Any) -> bool:
    """Whether the server said, with its last answer, that a transaction is open."""
    return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def check_open(connection: Any) -> None:
    """Make sure that statements are in a transaction.

    Raises:
        UsageError: they are not.
    """
    if connection.get_autocommit() and not in_transaction(connection):
        message = "the connection commits each statement by itself"
        raise UsageError(message, hint="call connection.begin() first")


class PyMySqlLink:
    """See `perdure.guard.link.Link`."""

    dialect = MYSQL
    is_async = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._savepoint = SavepointSql()

    def check(self) -> None:
        """See `Link`."""
        check_open(self._connection)

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        with self._connection.cursor(Cursor) as cursor:
            if not isinstance(request, Query):
                for text in self._savepoint.texts(request):
                    cursor.execute(text)
                return Result()
            count = cursor.execute(request.text.replace("?", "%s"), request.values)
            return Result(count, tuple(cursor.fetchall()))

    @property
    def driver(self) -> Any:
        """See `Link`."""
        return self._connection

    def begin(self) -> None:
        """See `Link`."""
        self._connection.begin()

    def commit(self) -> None:
        """See `Link`."""
        self._connection.commit()

    def rollback(self) -> None:
        """See `Link`."""
        self._connection.rollback()

    def close(self) -> None:
        """See `Link`."""
        self._connection.close()

    def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        if in_transaction(self._connection):
            message = "a table is created outside of a transaction, which it would commit"
            raise UsageError(message, hint="commit first")
        with self._connection.cursor(Cursor) as cursor:
            for text in statements:
                cursor.execute(text)


def open_link(connection: Any) -> PyMySqlLink | None:
    """Return the link to a connection, None if it is something else."""
    return PyMySqlLink(connection) if isinstance(connection, Connection) else None
