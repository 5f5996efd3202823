"""Running an engine in the foreground: signals, and an end that comes in time whatever user code does.

The first SIGTERM or SIGINT asks for a stop in good order; the second ends the process at once. Handlers are Python's
own, not the loop's, so that a body that blocks the loop cannot keep them from acting. Ending at once is safe: what was
promised is recorded, and other workers take the rest over when the lease has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from perdure.cli.telling import FAILED, INTERRUPTED, Crashed
from perdure.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from perdure.api.engine import Engine

logger: logging.Logger = logging.getLogger("perdure.cli")
T = TypeVar("T")
SAME_S = 0.2
"""Signals that come closer together are one: a terminal signals the whole group, and who started us may pass it on."""
SPARE_S = 5.0
"""How long a stop may take beyond its grace, before the process ends without it."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
"""Between two attempts to open a database that is away."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_abandoned: list[asyncio.AbstractEventLoop] = []
"""Loops whose tasks would not end. Kept, so that nothing of them is ever run again, not even to close it."""


class Stop:
    """The wish to stop.

    Attributes:
        wanted: set on the loop at the first signal.
        by: the signal that came first; None if none did.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace_s: float, told: Callable[[], None]) -> None:
        self._loop = loop
        self._limit_s = grace_s + SPARE_S
        self._told = told
        self.wanted: asyncio.Event = asyncio.Event()
        self._at = 0.0
        self.by: signal.Signals | None = None

    def __call__(self, number: int, _frame: object) -> None:
        """Take a signal."""
        now = time.monotonic()
        if self.by is not None:
            if now - self._at > SAME_S:
                leave(INTERRUPTED)
            return
        self.by, self._at = signal.Signals(number), now
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._want)
        last = threading.Timer(self._limit_s, leave, (FAILED,))
        last.daemon = True
        last.start()

    def _want(self) -> None:
        self._told()
        self.wanted.set()


def serve(work: Callable[[Stop], Coroutine[Any, Any, T]], grace_s: float, told: Callable[[], None]) -> T:
    """Run ``work`` on a loop of its own until it returns.

    Args:
        work: gets the `Stop` it must heed.
        grace_s: how long a stop in good order may take.
        told: called on the loop when the first signal has come.

    Raises:
        Crashed: user code raised SystemExit inside the engine: a worker must not end as if all were well.
    """
    loop = asyncio.new_event_loop()
    stop = Stop(loop, grace_s, told)
    try:
        with _signals(stop):
            return loop.run_until_complete(work(stop))
    except SystemExit as error:
        message = f"user code called sys.exit({error.code!r}), which ended the engine"
        raise Crashed(message) from None
    finally:
        if asyncio.all_tasks(loop):
            _abandoned.append(loop)
        else:
            loop.close()


async def opened(open_: Callable[[], Coroutine[Any, Any, object]], stop: Stop) -> bool:
    """Call ``open_`` until the database is there; return whether it is, False if a signal came first.

    Raises:
        PerdureError: waiting does not help: the address is wrong, say, or the schema too new.
    """
    pause = _FIRST_PAUSE_S
    said = False
    while not stop.wanted.is_set():
        try:
            await open_()
        except StoreUnavailable as error:
            if not said:
                logger.warning("waiting for the database: %s", error)
            said = True
        else:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wanted.wait(), pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, _LONGEST_PAUSE_S)
    return False


async def until_stopped(result: Any, engine: Engine, stop: Stop) -> tuple[Any, bool]:
    """Return a result and True; or None and False if a signal came first.

    Raises:
        Crashed: the engine cannot go on.
    """
    waiting = asyncio.ensure_future(result)
    broken = asyncio.ensure_future(engine.failure())
    stopped = asyncio.ensure_future(stop.wanted.wait())
    tasks: list[asyncio.Future[Any]] = [waiting, broken, stopped]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result(), True
        if stopped.done():
            return None, False
        raise Crashed(broken.result())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def must_leave() -> bool:
    """Whether a normal end of the interpreter would wait for user code that does not end."""
    main = threading.main_thread()
    return bool(_abandoned) or any(thread is not main and not thread.daemon for thread in threading.enumerate())


def leave(code: int) -> NoReturn:
    """End the process now."""
    # A signal may have come in the middle of a write to one of these.
    for flush in (logging.shutdown, sys.stdout.flush, sys.stderr.flush):
        with suppress(Exception):
            flush()
    os._exit(code)
