"""Django's connections: ``django.db.connection`` and those of ``django.db.connections``."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, transaction

from perdure.errors import UsageError
from perdure.guard.statement import MYSQL, POSTGRESQL, SQLITE, Query, Request, Result, Savepoint

_DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL}


class DjangoLink:
    """See `perdure.guard.link.Link`."""

    is_async = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.dialect: str = _DIALECTS[connection.vendor]
        self._savepoint: Any = None
        self._atomic: Any = None

    def check(self) -> None:
        """See `Link`."""
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            message = "the connection commits each statement by itself"
            raise UsageError(message, hint="use `with transaction.atomic():`")

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        if isinstance(request, Query):
            with self._connection.cursor() as cursor:
                cursor.execute(request.text.replace("?", "%s"), request.values)
                rows = tuple(map(tuple, cursor.fetchall())) if cursor.description else ()
                return Result(max(cursor.rowcount, 0), rows)
        if request is Savepoint.OPEN:
            self._savepoint = self._connection.savepoint()
        elif request is Savepoint.KEEP:
            self._connection.savepoint_commit(self._savepoint)
        else:
            self._connection.savepoint_rollback(self._savepoint)
            self._connection.savepoint_commit(self._savepoint)
        return Result()

    @property
    def driver(self) -> Any:
        """See `Link`."""
        return self._connection.connection

    def begin(self) -> None:
        """See `Link`."""
        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()

    def commit(self) -> None:
        """See `Link`."""
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        """See `Link`."""
        if self._connection.in_atomic_block:
            self._atomic.__exit__(DatabaseError, DatabaseError("undone"), None)

    def close(self) -> None:
        """See `Link`."""
        self._connection.close()

    def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        if self._connection.in_atomic_block:
            message = "a table is created outside of a transaction"
            raise UsageError(message, hint="call it before transaction.atomic()")
        with self._connection.cursor() as cursor:
            for text in statements:
                cursor.execute(text)
        if not self._connection.get_autocommit():
            self._connection.commit()


def open_link(connection: Any) -> DjangoLink | None:
    """Return the link to a connection, None if it is something else, or of a database that guards do not know."""
    return DjangoLink(connection) if getattr(connection, "vendor", None) in _DIALECTS else None
