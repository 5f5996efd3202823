"""The server's clock as this process knows it: told with answers that carry it, carried on by the time since boot.

INV-1  It is never ahead of the server's, except by how much faster our clock runs between two answers; so a timer is
       not early because of it.
INV-2  It is never behind a time that the server has told, so what was recorded lies in the past.
INV-3  It never goes back, whatever the server's clock does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_KEPT_US = 60_000_000
"""After this long a reading is forgotten: clocks drift apart."""
_FRESH_US = 10_000_000


def boot_us() -> int:
    """Return microseconds on a clock that nobody sets and that runs on while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class ServerClock:
    """See the module. Any thread may call it.

    The difference to our own clock is taken from the latest arrival of each reading: what is in between is the way of
    the answer, so the truth is at most that much later. Of the readings of the last minute the best one counts.
    """

    def __init__(self, ticks: Callable[[], int] = boot_us, wall: Callable[[], int] | None = None) -> None:
        self._ticks = ticks
        start = wall() if wall is not None else time.time_ns() // 1000
        self._offset = start - ticks()
        self._heard_at: int | None = None
        self._spans: list[tuple[int, int]] = []
        """(when it began, best difference) of this and the last span of time."""
        self._last = 0

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        now = self._offset + self._ticks()
        if now < self._last:
            return self._last
        self._last = now
        return now

    @property
    def is_stale(self) -> bool:
        """Whether it would be good to hear from the server again."""
        heard = self._heard_at
        return heard is None or self._ticks() - heard > _FRESH_US

    def hear(self, told: int) -> None:
        """Take in what the server's clock said, right after the answer has arrived."""
        ticks = self._ticks()
        offset = told - ticks
        if self._heard_at is None:
            self._last = 0  # until now it was a guess
        spans = [span for span in self._spans if ticks - span[0] < _KEPT_US]
        if not spans or ticks - spans[-1][0] > _KEPT_US // 2:
            spans.append((ticks, offset))
        else:
            spans[-1] = (spans[-1][0], max(spans[-1][1], offset))
        self._spans = spans
        self._offset = max(best for _, best in spans)
        self._heard_at = ticks
