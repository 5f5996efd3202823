"""The worker's lease: one row, one heartbeat, whatever the load.

The heartbeat has its own thread, so neither a busy loop nor user code can starve it. The owner's own deadline counts
from *sending* the last confirmed heartbeat, on a clock that no adjustment moves and that runs on while the machine
sleeps, and ends a tenth early. Past it nothing new is started until a heartbeat succeeds; nothing is dropped for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perdure.errors import StoreError

if TYPE_CHECKING:
    import asyncio

    from perdure.model.run import Heartbeat
    from perdure.store.base import Store

logger: logging.Logger = logging.getLogger("perdure.worker")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


boot_time: Callable[[], float] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
"""Seconds on a clock that includes suspend where the platform has one."""


class Lease:
    """Keeps a worker alive in the database."""

    def __init__(self, store: Store, worker_id: str, lease_us: int) -> None:
        self._store = store
        self._worker_id = worker_id
        self._lease_us = lease_us
        self.deadline: float = 0.0
        """Until when effects may be started, by `boot_time`."""
        self.steady_since: float = 0.0
        """Since when no heartbeat has been late, by `boot_time`."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost: bool = False

    def holds(self) -> bool:
        """Whether effects may be started now."""
        return boot_time() < self.deadline

    @property
    def beating(self) -> bool:
        """Whether its thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def granted(self, sent: float) -> None:
        """Note that the worker's row was written, asked for at ``sent`` (`boot_time`)."""
        if 0 < self.deadline < boot_time():
            self.steady_since = boot_time()
        self.deadline = sent + self._lease_us * 0.9 / 1_000_000

    def start(
        self, loop: asyncio.AbstractEventLoop, beaten: Callable[[Heartbeat], None], look: Callable[[], None]
    ) -> None:
        """Begin to beat; ``beaten`` is called on ``loop`` after each answer, ``look`` on the thread in each round."""
        arguments = (loop, beaten, look)
        self._thread = threading.Thread(target=self._run, args=arguments, name="perdure-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(
        self, loop: asyncio.AbstractEventLoop, beaten: Callable[[Heartbeat], None], look: Callable[[], None]
    ) -> None:
        interval = self._lease_us / 3_000_000
        pause = interval
        while not self._stop.wait(pause):
            sent = boot_time()
            try:
                answer = self._store.heartbeat(self._worker_id, self._lease_us)
            except StoreError as error:
                logger.debug("heartbeat failed: %s", error)
                pause = min(interval, 0.2)
                continue
            pause = interval
            if answer.alive:
                self.granted(sent)
            else:
                self.lost = True
                self.deadline = 0.0
            try:
                loop.call_soon_threadsafe(beaten, answer)
                look()
            except RuntimeError:
                return  # the loop is closed
            if self.lost:
                return
