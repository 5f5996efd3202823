"""Sees a flight to its end on an event loop: calls it when its file is ready, and when its time is up."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.base import Flight


def can_watch(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop can tell when a file is ready. That of Windows' completion ports cannot."""
    completion = getattr(asyncio, "ProactorEventLoop", None)
    return completion is None or not isinstance(loop, completion)


class Watch:
    """See the module.

    Args:
        loop: the one that runs.
        flight: not over yet.
        landed: called when it is.
    """

    __slots__ = ("_file", "_flight", "_landed", "_loop", "_timer", "_writes")

    def __init__(self, loop: asyncio.AbstractEventLoop, flight: Flight, landed: Callable[[], None]) -> None:
        self._loop = loop
        self._flight = flight
        self._landed = landed
        self._file = flight.fileno()
        self._writes = flight.unsent
        loop.add_reader(self._file, self._ready)
        if self._writes:
            loop.add_writer(self._file, self._ready)
        self._timer = loop.call_later(max(flight.deadline - monotonic(), 0), self._expire)

    def cancel(self) -> None:
        """Watch no more, and give the flight up."""
        self._stop()
        self._flight.abandon()

    def _ready(self) -> None:
        if self._flight.advance():
            self._stop()
            self._landed()
        elif self._flight.unsent != self._writes:
            self._writes = not self._writes
            if self._writes:
                self._loop.add_writer(self._file, self._ready)
            else:
                self._loop.remove_writer(self._file)

    def _expire(self) -> None:
        self._stop()
        self._flight.expire()
        self._landed()

    def _stop(self) -> None:
        """Let go of the file, before anybody closes it."""
        self._timer.cancel()
        self._loop.remove_reader(self._file)
        if self._writes:
            self._loop.remove_writer(self._file)
