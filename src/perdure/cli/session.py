"""How a command gets at a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.api.binding import Wish
from perdure.api.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def read(url: str, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an existing database, which is only read: nothing is created or migrated."""
    return running(Engine(url, worker=False, read_only=True), work)


def act(url: str, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an existing database: nothing is created or migrated."""
    return running(Engine(url, worker=False, create=False, migrate=False), work)


def build(url: str, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on a database that is made or migrated if need be."""
    return running(Engine(url, worker=False), work)


def rehearse(given: tuple[Any, tuple[Any, ...], dict[str, Any]], call: dict[str, Any], code: list[Any]) -> None:
    """Start the run in memory: whatever is wrong with it is found before a database is touched, or even made.

    Args:
        given: workflow, positional and named arguments.
        call: options of the start.
        code: what the engine is given as workflows.

    Raises:
        PerdureError: as the start itself would.
    """
    # Which versions there are to choose from is known to the database alone.
    call = {name: value for name, value in call.items() if name not in Wish._fields}

    async def work(engine: Engine) -> None:
        await engine.start_call(*given, **call)

    running(Engine("sqlite://", code, worker=False), work)


def running(engine: Engine, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with an engine that is opened for it."""

    async def scope() -> T:
        async with engine:
            return await work(engine)

    return asyncio.run(scope())
