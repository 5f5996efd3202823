"""Tells other processes that something has changed: a hint, in a tiny transaction of its own, never in that of a batch.

Hints are gathered: the first goes out at once, the next ones at most every `PAUSE_S`. One that cannot be sent is tried
again, because who trusts in hints looks by himself much later. They may get lost all the same; everybody polls too.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger: logging.Logger = logging.getLogger("perdure.store")
PAUSE_S = 0.05
RETRY_S = 0.2


class Hints:
    """Sends hints from a thread of its own, which is started with the first one."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def announce(self) -> None:
        """Have others told soon that something has changed."""
        self._wanted.set()
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="perdure-hints", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._stopped.is_set():
                return
            self._wanted.clear()
            try:
                self._send()
            except Exception as error:  # noqa: BLE001 - whatever it is, others find the change by polling
                logger.debug("cannot send a hint: %s", error)
                self._wanted.set()
                self._stopped.wait(RETRY_S)
            else:
                self._stopped.wait(PAUSE_S)
