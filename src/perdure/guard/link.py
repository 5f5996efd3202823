"""Between a guard and the application's own connection: how a driver is found, and how a guard is run over it.

The driver is the file in ``drivers`` with the name of the package that the connection's class comes from. It is
imported only when such a connection is at hand, so its library is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from perdure.errors import UsageError
from perdure.guard.statement import Request, Result, Steps

P = ParamSpec("P")
R = TypeVar("R")
_DRIVERS = f"{__package__}.drivers"


class Link(Protocol):
    """The application's connection as a guard sees it.

    A link belongs to one use of one guard. ``open_link(connection)`` of each driver returns one.
    """

    dialect: str
    """`perdure.guard.statement` names them."""
    is_async: bool
    """Whether `perform` and the others return awaitables."""

    def check(self) -> Awaitable[None] | None:
        """Make sure that the caller's transaction is open.

        Raises:
            UsageError: the connection commits each statement by itself, or its transaction has failed.
        """
        ...

    def perform(self, request: Request) -> Result | Awaitable[Result]:
        """Do what a guard asks."""
        ...

    @property
    def driver(self) -> Any:
        """The driver's own connection, below a library such as SQLAlchemy. A transaction is open."""
        ...

    def begin(self) -> Awaitable[None] | None:
        """Open a transaction on a connection that has none; on SQLite with the lock of writers."""
        ...

    def commit(self) -> Awaitable[None] | None:
        """Commit the transaction."""
        ...

    def rollback(self) -> Awaitable[None] | None:
        """Roll back what is open; nothing if there is nothing."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Close the connection, or hand it back to where it came from."""
        ...

    def create(self, statements: tuple[str, ...]) -> Awaitable[None] | None:
        """Execute statements that make tables, and commit.

        Raises:
            UsageError: a transaction is open.
        """
        ...


def link(connection: Any, *, is_async: bool) -> Link:
    """Return the link to a connection.

    Raises:
        UsageError: no driver knows it, or it is of the other colour.
    """
    for cls in type(connection).__mro__:
        package = cls.__module__.partition(".")[0]
        if package.isidentifier() and package != "builtins" and find_spec(f"{_DRIVERS}.{package}") is not None:
            found = cast("Link | None", import_module(f"{_DRIVERS}.{package}").open_link(connection))
            if found is None:
                break
            _check_colour(found, connection, is_async=is_async)
            return found
    message = f"a guard cannot use {type(connection).__module__}.{type(connection).__qualname__} as a connection"
    raise UsageError(
        message,
        hint="pass a connection of sqlite3, apsw, psycopg, PyMySQL or Django, or SQLAlchemy's connection or session",
    )


def _check_colour(found: Link, connection: Any, *, is_async: bool) -> None:
    if found.is_async == is_async:
        return
    name = type(connection).__name__
    if is_async:
        message = f"{name} blocks, and cannot be awaited"
        raise UsageError(
            message, hint="use `with`, or call the function without `.aio`; in an async function on a thread"
        )
    message = f"{name} is async"
    raise UsageError(message, hint="use `async with`, or `await` the function's `.aio`")


def run(over: Link, steps: Steps[R]) -> R:
    """Run a guard over a blocking connection."""
    try:
        request = next(steps)
        while True:
            try:
                result = cast("Result", over.perform(request))
            except Exception as error:  # noqa: BLE001 - the guard decides what it means
                request = steps.throw(error)
            else:
                request = steps.send(result)
    except StopIteration as end:
        return cast("R", end.value)


async def run_async(over: Link, steps: Steps[R]) -> R:
    """Run a guard over an async connection."""
    try:
        request = next(steps)
        while True:
            try:
                result = await cast("Awaitable[Result]", over.perform(request))
            except Exception as error:  # noqa: BLE001 - the guard decides what it means
                request = steps.throw(error)
            else:
                request = steps.send(result)
    except StopIteration as end:
        return cast("R", end.value)


class Guarded(Generic[P, R]):
    """A guard as a function of a connection: call it with a blocking one, await its ``aio`` with an async one."""

    def __init__(self, steps: Callable[Concatenate[Link, P], Steps[R]]) -> None:
        self._steps = steps
        update_wrapper(cast("Any", self), steps)
        signature = inspect.signature(steps)
        first, *others = signature.parameters.values()
        self.__signature__: inspect.Signature = signature.replace(
            parameters=[first.replace(annotation="Any"), *others],
            return_annotation=str(signature.return_annotation).removeprefix("Steps[").removesuffix("]"),
        )

    def __call__(self, connection: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it over a blocking connection."""
        over = link(connection, is_async=False)
        over.check()
        return run(over, self._steps(over, *args, **kwargs))

    async def aio(self, connection: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it over an async connection."""
        over = link(connection, is_async=True)
        await cast("Awaitable[None]", over.check())
        return await run_async(over, self._steps(over, *args, **kwargs))
