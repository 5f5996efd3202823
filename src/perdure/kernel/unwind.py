"""Unwinding a body whose run leaves this process: every coroutine is closed in its own task's context.

Left to the garbage collector, a step in a ``finally`` would run outside any run, or become an operation of another one.
"""

from __future__ import annotations

import contextvars
from asyncio import events
from typing import TYPE_CHECKING, Any

from perdure.kernel.scope import CURRENT, Evicted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from perdure.kernel.loop import RunLoop, RunTask

MOST_AWAITS = 1_000
"""How often clean-up may await something, and is thrown out of it, before it is left alone."""


def close_task(loop: RunLoop, task: RunTask) -> None:
    """Unwind the coroutine of a task that is not done."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is pending on purpose
    _unwind(loop, task.context, task.get_coro())


def close_generator(loop: RunLoop, generator: AsyncGenerator[Any, Any]) -> None:
    """Close an asynchronous generator that nobody iterates any more."""
    context = contextvars.Context()
    context.run(CURRENT.set, loop.execution)
    coroutine = aclose(generator)
    try:
        context.run(_in_loop, loop, coroutine.send, None)
    except BaseException:  # noqa: BLE001 - whatever clean-up raises while it is unwound is void
        return
    _unwind(loop, context, coroutine)


async def aclose(generator: AsyncGenerator[Any, Any]) -> None:
    """Close a generator, as a coroutine that can be a task."""
    await generator.aclose()


def _unwind(loop: RunLoop, context: contextvars.Context, coroutine: Any) -> None:
    """Throw the coroutine out of all it awaits.

    Not ``close()``: when clean-up awaits something, that tears inner coroutines off the outer ones.
    """
    for _ in range(MOST_AWAITS):
        try:
            context.run(_in_loop, loop, coroutine.throw, Evicted())
        except BaseException:  # noqa: BLE001 - whatever clean-up raises while it is unwound is void
            return


def _in_loop(loop: RunLoop, call: Callable[..., object], *args: object) -> None:
    events._set_running_loop(loop)  # noqa: SLF001 - as in `RunLoop.drain`
    try:
        call(*args)
    finally:
        events._set_running_loop(loop.outer)  # noqa: SLF001
