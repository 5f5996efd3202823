"""Where asyncio itself is not deterministic, or differs between Python versions: replaced inside a run.

Outside a run every function here is the original.

* ``as_completed`` puts the awaitables into a set before it makes tasks of them, so coroutines become tasks in the
  order of their addresses. Here tasks are made in argument order first.
* ``wait_for`` makes a task of a coroutine on Python 3.11 and none from 3.12 on, which gives the operations in it other
  ids. Here it makes none anywhere.
* ``timeout`` before Python 3.11.3, in a task that was cancelled and went on, ends with ``CancelledError`` and not with
  ``TimeoutError`` (CPython issue gh-102780). Here it ends as in later versions.
* ``TaskGroup`` before Python 3.13 does not take back the cancel with which it wakes its own task at its end (CPython
  issue gh-116720), so a time limit around it ends with ``CancelledError``. Here it takes it back.
* ``all_tasks`` collects from a global set that other runs share. Here it is the run's tasks in order.
* The future that ``gather`` returns hashes by address. In a run it hashes like every other future there.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events, tasks
from functools import wraps
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from perdure.kernel import loop as run_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from types import TracebackType

# Unwrapped: were perdure imported a second time, the first replacements would be found here.
_as_completed: Any = unwrap(tasks.as_completed)
_wait_for: Any = unwrap(tasks.wait_for)
_all_tasks: Any = unwrap(tasks.all_tasks)


def _code(function: Any) -> Any:
    """Return the code that iterates over the set: the function's own, or its iterator class's (Python 3.13)."""
    iterator = getattr(tasks, "_AsCompletedIterator", None)
    return function.__code__ if iterator is None else iterator.__init__.__code__


def _run_loop() -> run_loop.RunLoop | None:
    running = events._get_running_loop()  # noqa: SLF001 - get_running_loop() would raise outside a loop
    return running if isinstance(running, run_loop.RunLoop) else None


@wraps(_as_completed)
def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
    """Make tasks in argument order first when called in a workflow body."""
    running = _run_loop()
    if running is not None and not asyncio.iscoroutine(fs):
        fs = [asyncio.ensure_future(awaitable, loop=running) for awaitable in fs]
    return _as_completed(fs, timeout=timeout)


@wraps(_wait_for)
async def wait_for(fut: Awaitable[Any], timeout: float | None) -> Any:
    """Await in the caller's own task, on every version of Python."""
    if _run_loop() is None:
        return await _wait_for(fut, timeout)
    if timeout is not None and timeout <= 0:
        future = asyncio.ensure_future(fut)
        if not future.done():
            future.cancel()
            await asyncio.wait([future])
        if future.cancelled():
            raise TimeoutError
        return future.result()
    async with asyncio.timeout(timeout):
        return await fut


@wraps(_all_tasks)
def all_tasks(loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """Return the run's own tasks when called in a workflow body."""
    asked = loop if loop is not None else _run_loop()
    if isinstance(asked, run_loop.RunLoop):
        return {task for task in asked.tasks if not task.done()}
    return _all_tasks(loop)


def _mend_timeout() -> None:
    """Let a timeout in a run look only at the cancels that came while it was entered, as from Python 3.11.3 on."""
    timeout: Any = asyncio.Timeout
    enter, leave = timeout.__aenter__, timeout.__aexit__

    async def entering(limit: Any) -> Any:
        await enter(limit)
        limit.cancelled_before = limit._task.cancelling()  # noqa: SLF001 - as later versions of Timeout do
        return limit

    async def leaving(
        limit: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave(limit, kind, error, trace)
        ours = kind is asyncio.CancelledError and limit.expired() and _run_loop() is not None
        if ours and limit._task.cancelling() <= limit.cancelled_before:  # noqa: SLF001 - the same
            raise TimeoutError from error

    timeout.__aenter__, timeout.__aexit__ = entering, leaving


def _mend_task_group() -> None:
    """Let a group in a run take back the cancel with which it woke its task at its end, as from Python 3.13 on."""
    group_type: Any = asyncio.TaskGroup
    leave = group_type.__aexit__

    async def leaving(
        group: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        taken_back = group._parent_cancel_requested  # noqa: SLF001 - what came before the end, asyncio takes back
        try:
            await leave(group, kind, error, trace)
        finally:
            ours = group._parent_cancel_requested and not taken_back  # noqa: SLF001 - the same
            if ours and _run_loop() is not None:
                group._parent_task.uncancel()  # noqa: SLF001 - the same

    group_type.__aexit__ = leaving


def _gathering_hash(future: Any) -> int:
    loop = future.get_loop()
    if not isinstance(loop, run_loop.RunLoop):
        return object.__hash__(future)
    number = getattr(future, "number", None)
    if number is None:
        number = future.number = loop.next_number()
    return hash((loop.salt, number))


def install() -> None:
    """Put the replacements in place, once."""
    if run_loop.AS_COMPLETED_CODE is not None:
        return
    run_loop.AS_COMPLETED_CODE = _code(_as_completed)
    if sys.version_info < (3, 11, 3):
        _mend_timeout()
    if sys.version_info < (3, 13):
        _mend_task_group()
    tasks._GatheringFuture.__hash__ = _gathering_hash  # type: ignore[attr-defined] # noqa: SLF001
    for module in (tasks, asyncio):
        for function in (as_completed, wait_for, all_tasks):
            setattr(module, function.__name__, function)
