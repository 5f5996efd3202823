"""Notices from another thread that the event loop does not answer, and says which user code blocks it."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING

from perdure.kernel.loop import RunLoop
from perdure.runtime.attempt import Attempts
from perdure.runtime.lease import boot_time

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

logger: logging.Logger = logging.getLogger("perdure.worker")
_STEP = Attempts._run_async.__code__  # noqa: SLF001 - recognised on the stack, never called
_BODY = RunLoop.drain.__code__


class Watchdog:
    """Asks the loop for a sign of life. Make it on the loop's thread, call `look` on another one, time and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._asked = 0.0
        self._warned = False

    def look(self) -> None:
        """Ask, or warn once if the loop has not answered since it was asked the last time."""
        if self._asked == 0.0:
            self._asked = boot_time()
            self._loop.call_soon_threadsafe(self._answer)
        elif not self._warned:
            self._warned = True
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to see another thread
            waited = boot_time() - self._asked
            logger.warning(
                "%s blocks the event loop: no answer for %.1f s; nothing else goes on here", culprit(frame), waited
            )

    def _answer(self) -> None:
        self._asked, self._warned = 0.0, False


def culprit(frame: FrameType | None) -> str:
    """Name the step or body that runs on a stack."""
    innermost = frame
    while frame is not None:
        if frame.f_code is _STEP:
            operation = frame.f_locals["attempt"].operation
            return f"async step {operation.name!r} of run {operation.run.run_id!r} ({_place(innermost)})"
        if frame.f_code is _BODY:
            return f"the body of run {frame.f_locals['self'].execution.run_id!r} ({_place(innermost)})"
        frame = frame.f_back
    return f"code outside any run ({_place(innermost)})"


def _place(frame: FrameType | None) -> str:
    return "unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
