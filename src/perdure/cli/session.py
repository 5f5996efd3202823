"""How a command gets at a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.api.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def read(url: str, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an existing database, which is only read: nothing is created or migrated."""
    return _with(Engine(url, worker=False, read_only=True), work)


def act(url: str, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an existing database: nothing is created or migrated."""
    return _with(Engine(url, worker=False, create=False), work)


def _with(engine: Engine, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    async def scope() -> T:
        async with engine:
            return await work(engine)

    return asyncio.run(scope())
