"""Who waits in this process for runs to end, wherever they execute.

Runs that execute here tell when they end. All others are looked up together: one watch for all who wait, which looks
at the store's cheap change hint often, and at the runs themselves when it says so or when it is time.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from perdure.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.store.base import Store
    from perdure.store.thread import StoreThread

    End = tuple[RunRow, Event]
    """A run's row (as it was when it was last claimed here) and its last event."""

logger: logging.Logger = logging.getLogger("perdure.run")
FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.05
FULL_LOOK_S = 0.5
"""Longest time until the end of a run elsewhere is noticed, whatever the hint says."""


class Waiters:
    """Futures by run id, answered with the run's row and last event, or with None: look for yourself."""

    def __init__(self, store: Store, reader: StoreThread) -> None:
        self._store = store
        self._reader = reader
        self._futures: dict[str, set[asyncio.Future[End | None]]] = {}
        self._new: list[str] = []
        self._wake: asyncio.Event | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed = False
        self.is_here: Callable[[str], bool] = _nowhere
        """Whether a run executes in this process, and so tells by itself."""

    async def wait(self, run_id: str) -> End | None:
        """Wait until the run is at rest; giving up harms nobody else."""
        future: asyncio.Future[End | None] = asyncio.get_running_loop().create_future()
        self.add(run_id, future)
        try:
            return await future
        finally:
            self.discard(run_id, future)

    def add(self, run_id: str, future: asyncio.Future[End | None], *, is_new: bool = False) -> None:
        """Have a future answered once the run is at rest; after `close` at once, with None.

        Args:
            run_id: id of the run.
            future: to be answered.
            is_new: it was recorded just now and cannot have ended: there is no need to look at once.
        """
        if self._closed:
            if not future.done():
                future.set_result(None)
            return
        self._futures.setdefault(run_id, set()).add(future)
        if not self.is_here(run_id):
            self._look_at(None if is_new else run_id, future.get_loop())

    def discard(self, run_id: str, future: asyncio.Future[End | None]) -> None:
        """Answer a future no more."""
        waiting = self._futures.get(run_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._futures[run_id]

    def fail(self, error: Exception) -> None:
        """Raise ``error`` for everybody who waits for any run."""
        waiting, self._futures = self._futures, {}
        for future in {future for futures in waiting.values() for future in futures}:
            if not future.done():
                future.set_exception(error)

    def tell(self, run_id: str, end: End | None) -> None:
        """Wake everybody who waits for the run."""
        for future in self._futures.pop(run_id, ()):
            if not future.done():
                future.set_result(end)

    async def close(self) -> None:
        """Stop watching. Whoever still waits looks for himself, and finds the store closed."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for run_id in list(self._futures):
            self.tell(run_id, None)

    def _look_at(self, run_id: str | None, loop: asyncio.AbstractEventLoop) -> None:
        if self._wake is None:
            self._wake = asyncio.Event()
        if run_id is not None:
            self._new.append(run_id)
            self._wake.set()
        if self._watch is None or self._watch.done():
            self._watch = loop.create_task(self._run(self._wake), name="perdure-waiters")

    async def _run(self, wake: asyncio.Event) -> None:
        pause, seen, looked = FIRST_PAUSE_S, self._store.change_count(), monotonic()
        while self._futures:
            new, self._new = self._new, []
            wake.clear()
            if new:
                pause = FIRST_PAUSE_S
                await self._look(new)
            else:
                count = self._store.change_count()
                if count != seen or monotonic() - looked > FULL_LOOK_S:
                    seen = count
                    cost = await self._look(list(self._futures))
                    looked = monotonic()
                    pause = min(max(FIRST_PAUSE_S, 10 * cost), FULL_LOOK_S)
                else:
                    pause = min(pause * 1.5, LONGEST_PAUSE_S)
            if not self._new:
                timer = asyncio.get_running_loop().call_later(pause, wake.set)
                await wake.wait()
                timer.cancel()

    async def _look(self, run_ids: list[str]) -> float:
        """Wake those whose run is at rest or is not there. Returns how long the look took, in seconds."""
        elsewhere = [run_id for run_id in run_ids if run_id in self._futures and not self.is_here(run_id)]
        if not elsewhere:
            return 0.0
        began = monotonic()
        try:
            at_rest: list[str] = await self._reader.call(asyncio.get_running_loop(), self._at_rest, elsewhere)
        except StoreError as error:
            logger.debug("cannot look for ended runs now: %s", error)
            return FULL_LOOK_S / 10
        for run_id in at_rest:
            self.tell(run_id, None)
        return monotonic() - began

    def _at_rest(self, run_ids: list[str]) -> list[str]:
        going_on = set(self._store.going_on(run_ids))
        return [run_id for run_id in run_ids if run_id not in going_on]


def _nowhere(run_id: str) -> bool:  # noqa: ARG001 - the answer of a process without a worker
    return False
