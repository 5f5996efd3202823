"""`asyncio.as_completed` in the order of its arguments.

The standard library puts the awaitables into a set before it makes tasks of them, so coroutines become tasks in the
order of their addresses: another order each time. Outside a run the replacement is the original.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from functools import wraps
from typing import TYPE_CHECKING, Any

from perdure.kernel import loop as run_loop

if TYPE_CHECKING:
    from collections.abc import Iterable

_original: Any = tasks.as_completed


def _code(function: Any) -> Any:
    """Return the code that iterates over the set: the function's own, or its iterator class's (Python 3.13)."""
    iterator = getattr(tasks, "_AsCompletedIterator", None)
    return function.__code__ if iterator is None else iterator.__init__.__code__


@wraps(_original)
def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
    """Make tasks in argument order first when called in a workflow body."""
    running = events._get_running_loop()  # noqa: SLF001
    if isinstance(running, run_loop.RunLoop) and not asyncio.iscoroutine(fs):
        fs = [asyncio.ensure_future(awaitable, loop=running) for awaitable in fs]
    return _original(fs, timeout=timeout)


def install() -> None:
    """Put the ordered `as_completed` in place of the original, once."""
    if run_loop.AS_COMPLETED_CODE is None:
        run_loop.AS_COMPLETED_CODE = _code(_original)
        tasks.as_completed = as_completed
        asyncio.as_completed = as_completed
