"""The life of a version host: take the job, load it, work as a worker does, leave in good order.

INV-1  It ends when its worker does, within ``orphaned_s`` whatever user code does.
INV-2  Asked to stop, it finishes the steps it is in within the grace of its settings, and hands the rest back. Asked to
       drain, it finishes them however long they take.
INV-3  It says ``ready`` only when it claims, and ``idle`` before it leaves because there was nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import PerdureError
from perdure.hosting.control import Control, leave
from perdure.hosting.engine import HostedEngine, open_engine
from perdure.hosting.load import Loaded, foreign_modules, load
from perdure.runtime.hosts.job import TRY_LATER, Job, Told

if TYPE_CHECKING:
    from types import FrameType

    from perdure.hosting.control import Wish

logger: logging.Logger = logging.getLogger("perdure.hosting")
_LOOK_S: Final = 0.1
_SPARE_S: Final = 5.0
_FOREVER_S: Final = 10.0 * 365 * 86_400


def main() -> None:
    """Be a version host until there is nothing to do or nobody to do it for."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: leave(1))  # nothing has begun yet
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: our worker has got it too, and will tell
    os.register_at_fork(after_in_child=_be_ordinary)
    control = Control()
    job = control.read_job()
    if job is None:
        return
    control.watch(job.orphaned_s)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    loaded = load(job)
    for notice in loaded.notices:
        logger.warning("%s: %s", job.version, notice)
    for version_id, cause in loaded.causes.items():
        control.tell(Told("failed", [version_id], cause))
    if loaded.workflows:
        asyncio.run(_Host(job, loaded, control).work())
    _leave_soon()


def _be_ordinary() -> None:
    """Let a process that a step forks end as others do, not as a host does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _leave_soon() -> None:
    """End normally, but do not let threads of user code keep the process."""
    sys.stdout.flush()
    last = threading.Timer(_SPARE_S, leave, (0,))
    last.daemon = True
    last.start()


class _Host:
    """What happens on the loop."""

    def __init__(self, job: Job, loaded: Loaded, control: Control) -> None:
        self._job = job
        self._loaded = loaded
        self._control = control
        self._leave_by = float("inf")
        self._wished = asyncio.Event()

    async def work(self) -> None:
        """Work until there is a reason to leave."""
        loop = asyncio.get_running_loop()
        engine = open_engine(self._job, self._loaded.workflows, self._loaded.tree)
        self._listen(loop, engine)
        try:
            await engine.open()
        except PerdureError as error:
            logger.error("the host of %s cannot open the engine: %s", self._job.version, error)  # noqa: TRY400
            leave(TRY_LATER)
        self._control.tell(
            Told("ready", list(self._loaded.workflows), None, foreign_modules(self._job), self._loaded.notices)
        )
        failed = asyncio.ensure_future(engine.failure())
        try:
            await self._until_done(engine, failed)
        finally:
            failed.cancel()
            await self._close(engine)

    def _listen(self, loop: asyncio.AbstractEventLoop, engine: HostedEngine) -> None:
        grace_s = engine.grace_s  # as it is set; draining allows more

        def leave_within(seconds: float) -> None:
            self._leave_by = min(self._leave_by, time.monotonic() + seconds)
            self._wished.set()

        def wish(wanted: Wish) -> None:
            seconds = _FOREVER_S if wanted == "drain" else self._job.orphaned_s / 2
            _call(loop, leave_within, seconds)

        def terminate(_number: int, _frame: FrameType | None) -> None:
            last = threading.Timer(grace_s + _SPARE_S, leave, (1,))
            last.daemon = True
            last.start()
            _call(loop, leave_within, grace_s)

        signal.signal(signal.SIGTERM, terminate)
        self._control.when_wished(wish)

    async def _until_done(self, engine: HostedEngine, failed: asyncio.Future[str]) -> None:
        active_at = time.monotonic()
        while not self._wished.is_set():
            if not engine.is_idle:
                active_at = time.monotonic()
            elif time.monotonic() - active_at > self._job.host_idle_s:
                self._control.tell(Told("idle", list(self._loaded.workflows)))
                return
            if failed.done():
                logger.error("the host of %s cannot go on: %s", self._job.version, failed.result())
                leave(TRY_LATER)
            await _either(self._wished.wait(), _LOOK_S)

    async def _close(self, engine: HostedEngine) -> None:
        """Close the engine; leave by the time that the last wish allows."""
        engine.leave_within(min(self._leave_by - time.monotonic(), _FOREVER_S) if self._wished.is_set() else 1.0)
        closing = asyncio.ensure_future(engine.close())
        hurried = False
        while not closing.done():
            if not hurried and time.monotonic() > self._leave_by:
                hurried = True
                closing.cancel()  # it hands back at once, and then ends
            await asyncio.wait([closing], timeout=_LOOK_S)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed: it leaves already
        logger.debug("asked to leave while leaving")


async def _either(waiting: Any, seconds: float) -> None:
    task = asyncio.ensure_future(waiting)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
