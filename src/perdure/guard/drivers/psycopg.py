"""Connections of ``psycopg``, blocking and async."""

from __future__ import annotations

from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from perdure.errors import UsageError
from perdure.guard.savepoint import SavepointSql
from perdure.guard.statement import POSTGRESQL, Query, Request, Result


def check_open(connection: Any) -> None:
    """Make sure that statements are in a transaction; ``connection`` is psycopg's, or psycopg2's, which is alike.

    Raises:
        UsageError: they are not, or the transaction has failed.
    """
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        message = "the transaction has failed and can only be rolled back"
        raise UsageError(message)
    if status == TransactionStatus.IDLE and connection.autocommit:
        message = "the connection commits each statement by itself"
        raise UsageError(message, hint="use `with connection.transaction():`, or a connection without autocommit")


def _check_idle(connection: Any) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        message = "a table is created outside of a transaction"
        raise UsageError(message, hint="commit first")


def _written(query: Query) -> Any:
    return query.text.replace("?", "%s")


class PsycopgLink:
    """See `perdure.guard.link.Link`."""

    dialect = POSTGRESQL
    is_async = False

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._savepoint = SavepointSql()

    def check(self) -> None:
        """See `Link`."""
        check_open(self._connection)

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            if not isinstance(request, Query):
                for text in self._savepoint.texts(request):
                    cursor.execute(cast("Any", text))
                return Result()
            cursor.execute(_written(request), request.values)
            rows = tuple(cursor.fetchall()) if cursor.description else ()
            return Result(max(cursor.rowcount, 0), rows)

    @property
    def driver(self) -> psycopg.Connection[Any]:
        """See `Link`."""
        return self._connection

    def begin(self) -> None:
        """See `Link`."""
        if self._connection.autocommit:
            self._connection.execute("begin")

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
        _check_idle(self._connection)
        try:
            for text in statements:
                self._connection.execute(cast("Any", text))
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise


class AsyncPsycopgLink:
    """See `perdure.guard.link.Link`."""

    dialect = POSTGRESQL
    is_async = True

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._savepoint = SavepointSql()

    async def check(self) -> None:
        """See `Link`."""
        check_open(self._connection)

    async def perform(self, request: Request) -> Result:
        """See `Link`."""
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            if not isinstance(request, Query):
                for text in self._savepoint.texts(request):
                    await cursor.execute(cast("Any", text))
                return Result()
            await cursor.execute(_written(request), request.values)
            rows = tuple(await cursor.fetchall()) if cursor.description else ()
            return Result(max(cursor.rowcount, 0), rows)

    @property
    def driver(self) -> psycopg.AsyncConnection[Any]:
        """See `Link`."""
        return self._connection

    async def begin(self) -> None:
        """See `Link`."""
        if self._connection.autocommit:
            await self._connection.execute("begin")

    async def commit(self) -> None:
        """See `Link`."""
        await self._connection.commit()

    async def rollback(self) -> None:
        """See `Link`."""
        await self._connection.rollback()

    async def close(self) -> None:
        """See `Link`."""
        await self._connection.close()

    async def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        _check_idle(self._connection)
        try:
            for text in statements:
                await self._connection.execute(cast("Any", text))
            await self._connection.commit()
        except BaseException:
            await self._connection.rollback()
            raise


def open_link(connection: Any) -> PsycopgLink | AsyncPsycopgLink | None:
    """Return the link to a connection, None if it is something else."""
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgLink(connection)
    return PsycopgLink(connection) if isinstance(connection, psycopg.Connection) else None
