"""Making the task of a step so that it begins at once, and not a turn of the loop later.

Python 3.12 and newer can do that by themselves. For 3.11, a task hands its first turn to ``loop.call_soon``; while the
task is made, that name leads here, and the turn is taken as soon as the task is there.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from perdure.kernel.loop import current_task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

NATIVE: bool = sys.version_info >= (3, 12)


class Starter:
    """Makes tasks on one event loop."""

    __slots__ = ("_can_begin", "_keeper", "_loop", "_plain", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop
        self._plain: bool = loop.get_task_factory() is None
        """Whether the user leaves it to asyncio how a task is made."""
        self._turn: Callable[..., object] | None = None
        self._keeper: Callable[..., None] = self._keep
        self._can_begin: bool = self._plain and (NATIVE or (isinstance(loop, asyncio.BaseEventLoop) and self._fits()))

    def task(
        self, coroutine: Coroutine[Any, Any, None], name: str, context: Context, *, at_once: bool
    ) -> asyncio.Task[None]:
        """Make a task; with ``at_once`` it has had its first turn, or has even ended, where that can be.

        Not inside another task: no task can begin there.
        """
        loop = self._loop
        if not self._plain:
            task: asyncio.Task[None] = loop.create_task(coroutine, name=name, context=context)
            return task
        if not (at_once and self._can_begin and current_task(loop) is None):
            return asyncio.Task(coroutine, loop=loop, name=name, context=context)
        if sys.version_info >= (3, 12):
            return asyncio.Task(coroutine, loop=loop, name=name, context=context, eager_start=True)
        loop.call_soon = self._keeper
        try:
            task = asyncio.Task(coroutine, loop=loop, name=name, context=context)
        finally:
            del loop.call_soon
        turn, self._turn = self._turn, None
        context.run(turn)  # type: ignore[arg-type]
        return task

    def _keep(self, callback: Callable[..., object], *args: Any, context: Any = None) -> None:  # noqa: ARG002
        self._turn = callback

    def _fits(self) -> bool:
        """Whether this loop is one whose tasks ask it for their first turn in the way that is expected."""
        return "call_soon" not in vars(self._loop) and not self._loop.get_debug()
