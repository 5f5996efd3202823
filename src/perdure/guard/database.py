"""A database of the application's, in which a step can be a transaction.

The step's writes and its result are committed together. Where the engine's tables are in the same database of a
server, the result is the record in the run's log. Elsewhere it is stored under the step's key, and a repeat finds it:
the effect happens once, although the engine's record comes a moment later.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from perdure.errors import UsageError
from perdure.guard.link import Link, link
from perdure.guard.restraint import restrained

C = TypeVar("C")


class Database(Generic[C]):
    """Where transactional steps write: ``@step(mode="transaction", database=...)``.

    Making one connects to nothing. Each attempt of a step gets a connection of its own.

    Args:
        connect: returns a new connection of sqlite3, apsw, psycopg, PyMySQL or Django, or a connection or session of
            SQLAlchemy; or an awaitable of an async one; or a context manager that gives one, as pools do.
    """

    @overload
    def __init__(self: Database[C], connect: Callable[[], Awaitable[C]]) -> None: ...
    @overload
    def __init__(self: Database[C], connect: Callable[[], AbstractContextManager[C, Any]]) -> None: ...
    @overload
    def __init__(self: Database[C], connect: Callable[[], AbstractAsyncContextManager[C, Any]]) -> None: ...
    @overload
    def __init__(self: Database[C], connect: Callable[[], C]) -> None: ...
    def __init__(self, connect: Callable[[], Any]) -> None:
        if not callable(connect):
            message = f"Database(...) takes a function that connects, not {connect!r}"
            raise UsageError(message, hint='for example Database(lambda: sqlite3.connect("app.db"))')
        self._connect = connect
        self._current: ContextVar[Any] = ContextVar("perdure_connection", default=None)
        self.known: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """Store of an engine to where this database stands to it, once that was looked at."""

    @property
    def connection(self) -> C:
        """The connection of the transactional step that is running, with its transaction open.

        Raises:
            UsageError: no transaction on this database is running here.
        """
        found = self._current.get()
        if found is None:
            message = "a database's connection was asked for outside of a transactional step"
            raise UsageError(message, hint="in a test of a step by itself: `with database.transaction(): ...`")
        return cast("C", found)

    def transaction(self) -> Transaction[C]:
        """Return a transaction, for ``with`` or ``async with``, to call a step by itself, without an engine.

        It is committed at the end of the block, and rolled back when the block raises.
        """
        return Transaction(self)

    @contextmanager
    def lent(self, over: Link, connection: Any) -> Iterator[None]:
        """Have `connection` return this one inside the block, and nobody end its transaction."""
        if self._current.get() is not None:
            message = "a transactional step was called inside another one, on the same database"
            raise UsageError(message)
        token = self._current.set(connection)
        try:
            with restrained(over.driver):
                yield
        finally:
            self._current.reset(token)

    @contextmanager
    def opened(self) -> Iterator[tuple[Link, Any]]:
        """Connect, and close at the end. A transaction that was not committed is rolled back."""
        made = self._connect()
        if inspect.isawaitable(made) or (hasattr(made, "__aenter__") and not hasattr(made, "__enter__")):
            if inspect.iscoroutine(made):
                made.close()
            message = "an async connection cannot be used by a step that blocks"
            raise UsageError(message, hint="make the step `async def`, or connect with a blocking driver")
        with _managed(made) as connection:
            over = link(connection, is_async=False)
            try:
                yield over, connection
            except BaseException:
                with suppress(Exception):
                    over.rollback()
                raise
            finally:
                if connection is made:
                    with suppress(Exception):
                        over.close()

    @asynccontextmanager
    async def opened_async(self) -> AsyncIterator[tuple[Link, Any]]:
        """Connect, and close at the end. A transaction that was not committed is rolled back."""
        made = self._connect()
        if inspect.isawaitable(made):
            made = await made
        async with _managed_async(made) as connection:
            try:
                over = link(connection, is_async=True)
            except UsageError:
                if connection is made and hasattr(made, "close"):
                    made.close()  # it blocks, or it is nothing that could be open
                raise
            try:
                yield over, connection
            except BaseException:
                with suppress(Exception):
                    await cast("Awaitable[None]", over.rollback())
                raise
            finally:
                if connection is made:
                    with suppress(Exception):
                        await cast("Awaitable[None]", over.close())


def _is_connection(thing: Any) -> bool:
    for is_async in (False, True):
        with suppress(UsageError):
            link(thing, is_async=is_async)
            return True
    return False


@contextmanager
def _managed(made: Any) -> Iterator[Any]:
    """Give the connection itself, or what a context manager gives: connections are such, and would commit."""
    if _is_connection(made) or not hasattr(made, "__enter__"):
        yield made
        return
    with made as connection:
        yield connection


@asynccontextmanager
async def _managed_async(made: Any) -> AsyncIterator[Any]:
    if _is_connection(made) or not hasattr(made, "__aenter__"):
        yield made
        return
    async with made as connection:
        yield connection


class Transaction(Generic[C]):
    """A transaction without an engine; see `Database.transaction`."""

    def __init__(self, database: Database[C]) -> None:
        self._database = database
        self._blocking: Any = None
        self._async: Any = None

    @contextmanager
    def _run(self) -> Iterator[C]:
        with self._database.opened() as (over, connection):
            over.begin()
            with self._database.lent(over, connection):
                yield connection
            over.commit()

    @asynccontextmanager
    async def _run_async(self) -> AsyncIterator[C]:
        async with self._database.opened_async() as (over, connection):
            await cast("Awaitable[None]", over.begin())
            with self._database.lent(over, connection):
                yield connection
            await cast("Awaitable[None]", over.commit())

    def __enter__(self) -> C:
        self._blocking = self._run()
        return cast("C", self._blocking.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._blocking.__exit__(kind, error, traceback)

    async def __aenter__(self) -> C:
        self._async = self._run_async()
        return cast("C", await self._async.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async.__aexit__(kind, error, traceback)
