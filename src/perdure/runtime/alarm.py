"""When a run has something to do next: timers, retries and its deadline, by due time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from perdure.kernel.operation import Operation

LONGEST_S = 86_400.0
"""Longest span asked of the event loop at once; it rings early then, and is set again."""


class Alarm:
    """A heap of (due time, operation) and one timer of the engine's loop for the earliest."""

    __slots__ = ("_due", "_handle", "_heap", "_loop", "_n", "_now", "_ring", "_wanted")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], int], wanted: Callable[[Operation], bool],
        ring: Callable[[], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._now = now
        self._wanted = wanted
        self._ring = ring
        self._heap: list[tuple[int, int, Operation]] = []
        self._n = 0
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0

    def push(self, due: int, operation: Operation) -> None:
        """Ring when ``due`` (microseconds, the database's clock) has come."""
        self._n += 1
        heappush(self._heap, (due, self._n, operation))
        self._set(due)

    def take_due(self, now: int) -> list[Operation]:
        """Return what is due by ``now`` and still wanted, and set the alarm for the rest."""
        self._handle = None
        due = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            operation = heappop(heap)[2]
            if self._wanted(operation):
                due.append(operation)
        if heap:
            self._set(heap[0][0])
        return due

    @property
    def next_due(self) -> int | None:
        """The earliest due time of what is still wanted; None when there is nothing."""
        heap = self._heap
        while heap:
            if self._wanted(heap[0][2]):
                return heap[0][0]
            heappop(heap)
        return None

    def cancel(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._heap.clear()
        self._wanted, self._ring = _unwanted, _nothing  # what they are methods of refers back to the alarm

    def _set(self, due: int) -> None:
        if self._handle is not None:
            if self._due <= due:
                return
            self._handle.cancel()
        self._due = due
        delay = min(max(due - self._now(), 0) / 1_000_000, LONGEST_S)
        self._handle = self._loop.call_later(delay, self._ring)


def _unwanted(operation: Operation) -> bool:  # noqa: ARG001 - the answer of an alarm that is off
    return False


def _nothing() -> None:
    """Ring no bell."""
