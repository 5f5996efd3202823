"""SQLAlchemy's connections and sessions, blocking and async.

Savepoints are SQLAlchemy's own, so that the objects of a session follow them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from perdure.errors import UsageError
from perdure.guard.drivers.sqlite3 import AUTOCOMMIT
from perdure.guard.statement import MYSQL, POSTGRESQL, SQLITE, Query, Request, Result, Savepoint

_DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}
_HINT = "do not use the isolation level AUTOCOMMIT"


def _dialect(target: Any) -> str | None:
    bind = target if isinstance(target, Connection | AsyncConnection) else target.get_bind()
    return _DIALECTS.get(bind.dialect.name)


def _named(query: Query) -> tuple[Any, dict[str, Any]]:
    """Return the statement with named values, which every driver of SQLAlchemy takes."""
    first, *rest = query.text.split("?")
    written = first + "".join(f":v{number}{part}" for number, part in enumerate(rest))
    return text(written), {f"v{number}": value for number, value in enumerate(query.values)}


def _commits_each(driver: Any) -> bool:
    if hasattr(driver, "get_autocommit"):  # PyMySQL and its kin
        return bool(driver.get_autocommit())
    return getattr(driver, "autocommit", None) is True  # psycopg and psycopg2


class SqlAlchemyLink:
    """See `perdure.guard.link.Link`."""

    is_async = False

    def __init__(self, target: Connection | Session) -> None:
        self._target = target
        self.dialect: str = _dialect(target) or ""
        self._nested: Any = None

    @property
    def _connection(self) -> Connection:
        return self._target if isinstance(self._target, Connection) else self._target.connection()

    def check(self) -> None:
        """See `Link`."""
        connection = self._connection
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise UsageError(AUTOCOMMIT, hint=_HINT)
        driver: Any = connection.connection.driver_connection
        if self.dialect == SQLITE:
            # As in `perdure.guard.drivers.sqlite3`: the driver begins too late for a savepoint.
            if not driver.in_transaction:
                if driver.isolation_level is None:
                    raise UsageError(AUTOCOMMIT, hint=_HINT)
                connection.exec_driver_sql("begin immediate")
        elif _commits_each(driver):
            raise UsageError(AUTOCOMMIT, hint=_HINT)

    def perform(self, request: Request) -> Result:
        """See `Link`."""
        if isinstance(request, Query):
            done: Any = self._connection.execute(*_named(request))
            rows = tuple(map(tuple, done.all())) if done.returns_rows else ()
            return Result(max(done.rowcount, 0), rows)
        if request is Savepoint.OPEN:
            self._nested = self._target.begin_nested()
        elif request is Savepoint.KEEP:
            self._nested.commit()
        else:
            self._nested.rollback()
        return Result()

    @property
    def driver(self) -> Any:
        """See `Link`."""
        return self._connection.connection.driver_connection

    def begin(self) -> None:
        """See `Link`."""
        self.check()

    def commit(self) -> None:
        """See `Link`."""
        self._target.commit()

    def rollback(self) -> None:
        """See `Link`."""
        self._target.rollback()

    def close(self) -> None:
        """See `Link`."""
        self._target.close()

    def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        if self._target.in_transaction():
            message = "a table is created outside of a transaction"
            raise UsageError(message, hint="commit first")
        try:
            for each in statements:
                self._connection.execute(text(each))
            self._target.commit()
        except BaseException:
            self._target.rollback()
            raise


class AsyncSqlAlchemyLink:
    """See `perdure.guard.link.Link`. Does it all as the blocking one, where SQLAlchemy lets blocking code wait."""

    is_async = True

    def __init__(self, target: AsyncConnection | AsyncSession) -> None:
        self._target = target
        self.dialect: str = _dialect(target) or ""
        self._link: SqlAlchemyLink | None = None
        self._driver: Any = None

    def _blocking(self, target: Any) -> SqlAlchemyLink:
        if self._link is None:
            self._link = SqlAlchemyLink(target)
        return self._link

    async def check(self) -> None:
        """See `Link`."""
        await self._target.run_sync(lambda target: self._blocking(target).check())

    async def perform(self, request: Request) -> Result:
        """See `Link`."""
        return await self._target.run_sync(lambda target: self._blocking(target).perform(request))

    @property
    def driver(self) -> Any:
        """See `Link`."""
        return self._driver

    async def begin(self) -> None:
        """See `Link`."""
        await self.check()
        self._driver = await self._target.run_sync(lambda target: self._blocking(target).driver)

    async def commit(self) -> None:
        """See `Link`."""
        await self._target.commit()

    async def rollback(self) -> None:
        """See `Link`."""
        await self._target.rollback()

    async def close(self) -> None:
        """See `Link`."""
        await self._target.close()

    async def create(self, statements: tuple[str, ...]) -> None:
        """See `Link`."""
        await self._target.run_sync(lambda target: self._blocking(target).create(statements))


def open_link(target: Any) -> SqlAlchemyLink | AsyncSqlAlchemyLink | None:
    """Return the link to a connection or session; None if it is something else, or of a database guards do not know."""
    if isinstance(target, scoped_session | async_scoped_session):
        target = target()
    if not isinstance(target, Connection | Session | AsyncConnection | AsyncSession) or _dialect(target) is None:
        return None
    if isinstance(target, AsyncConnection | AsyncSession):
        return AsyncSqlAlchemyLink(target)
    return SqlAlchemyLink(target)
