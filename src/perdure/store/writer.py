"""Group commit: everything that waits to be written goes into one transaction.

There is no timer. A lone write commits at once, so latency is one commit; while a commit is under way others queue up
and make the next batch, so batches grow by themselves under load. Nobody is told anything before the transaction is
confirmed, and everybody is told in one turn of the event loop.

Where a commit takes microseconds (`Capabilities.inline`) it runs on the event loop's own thread, which saves two thread
hops. When the disk turns out to be slow, or another process holds the file, the writer goes to its thread. Where a
store can have a batch on its way (`Capabilities.sends`), the loop goes on meanwhile, and what goes wrong is for the
thread; a large batch is taken in by halves, so that there is something to do for both from then on.

* **W1** Writes are committed in the order of submission; but nobody waits behind one that is blocked by somebody
  else's transaction. It is tried again by itself, with pauses that grow to a second.
* **W2** While the store is unavailable the batch is kept and tried again; a write is never dropped.
* **W3** Trying again is safe: a store recognises an append or a start that is already there by its commit id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, cast

from perdure.errors import StoreError, StoreUnavailable
from perdure.model.write import Blocked, Failed
from perdure.store.thread import StoreThread
from perdure.store.watch import Watch, can_watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.model.write import Outcome, Write
    from perdure.store.base import Flight, Sender, Store

logger: logging.Logger = logging.getLogger("perdure.store")
SLOW_COMMIT_S = 0.004
"""Above this, on average, commits leave the event loop's thread."""
HALVED = 128
"""A batch of so many writes is taken in by halves where the store can work meanwhile; a smaller one is not worth it."""


class Submitter(Protocol):
    """Who is told how a write ended."""

    def settled(self, write: Any, outcome: Outcome) -> None:
        """Take the answer. Called on the event loop's thread, after the transaction is confirmed."""
        ...


class Writer:
    """The one way into the store for everything that is keyed by a run."""

    def __init__(self, store: Store, *, max_batch: int = 512, high_water: int = 20_000) -> None:
        self._store = store
        self._inline = store.capabilities.inline
        self._sends = store.capabilities.sends
        self._watch: Watch | None = None
        """Of the batch that is on its way."""
        self._max_batch = max_batch
        self._high_water = high_water
        self._queue: deque[tuple[Write, Submitter]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = StoreThread("perdure-writer")
        self._scheduled = False
        self._soon: asyncio.Handle | None = None
        """Of the batch that begins with the loop's next turn."""
        self._aside: list[tuple[Write, Submitter]] = []
        """Blocked writes, which wait for their next turn."""
        self._again: list[tuple[Write, Submitter]] = []
        """Blocked writes whose turn it is."""
        self._turns = 0
        self._room: set[asyncio.Future[None]] = set()
        """Of those who wait for room."""
        self._idle: set[asyncio.Future[None]] = set()
        """Of those who wait until everything is written."""
        self._average_s = 0.0
        self._failures = 0
        self.crash: BaseException | None = None
        """Set when the store raised something that is no `StoreError`: nothing is written any more."""
        self.on_crash: Callable[[BaseException], None] | None = None
        self.told: Callable[[], None] = _nothing
        """Called when everybody has been told how his write of a batch ended."""
        self.batches: int = 0
        self.writes: int = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve submissions made on ``loop``."""
        self._loop = loop
        self._sends = self._sends and can_watch(loop)

    async def close(self, patience_s: float) -> bool:
        """Wait until everything submitted is written, then stop. Whether it is.

        What is left is given up when nothing was confirmed for ``patience_s``: the store is away, or somebody in the
        way.
        """
        while self._is_busy:
            before = self.writes
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self.written()
            if self._is_busy and self.writes == before:
                self.abort()
                return False
        self._stop()
        return True

    async def written(self) -> None:
        """Wait until everything submitted is written, or nothing is written any more."""
        if self._is_busy:
            await _one_of(self._idle)

    @property
    def _is_busy(self) -> bool:
        return self.crash is None and bool(self._scheduled or self._aside or self._again)

    @property
    def _is_held_up(self) -> bool:
        return bool(self._failures or ((self._aside or self._again) and not self._queue))

    def abort(self) -> None:
        """Stop without writing what is queued."""
        self._clear()
        self.crash = self.crash or RuntimeError("aborted")
        self._stop()

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._thread.stop()

    def submit(self, write: Write, submitter: Submitter) -> None:
        """Queue a write. Must be called on the event loop's thread."""
        self._queue.append((write, submitter))
        if not self._scheduled:
            self._scheduled = True
            self._soon = self._loop.call_soon(self._flush)  # type: ignore[union-attr]
        elif self._soon is not None and self._sends and len(self._queue) >= self._max_batch:
            self._soon.cancel()
            self._flush()  # the store works while the loop does what comes before its next turn

    async def room(self) -> None:
        """Wait until the queue has room: the back-pressure for those who start runs."""
        if len(self._queue) > self._high_water:
            await _one_of(self._room)

    @property
    def is_full(self) -> bool:
        """Whether `room` would wait."""
        return len(self._queue) > self._high_water

    @property
    def _is_inline(self) -> bool:
        return self._inline and self._average_s < SLOW_COMMIT_S

    def _flush(self) -> None:
        """Commit the next batch, here or on the thread."""
        self._soon = None
        if self.crash is not None:
            return
        if self._again:
            batch, self._again = self._again[: self._max_batch], self._again[self._max_batch :]
        else:
            pending = self._queue
            batch = [pending.popleft() for _ in range(min(len(pending), self._max_batch))]
        if self._is_inline:
            began = perf_counter()
            result = self._commit(batch, block=False)
            if result is not None:
                self._average_s += (perf_counter() - began - self._average_s) / 16
                self._finish(batch, result)
                return
        if not (self._sends and self._is_sent(batch)):
            self._offload(batch)

    def _is_sent(self, batch: list[tuple[Write, Submitter]]) -> bool:
        """Have a batch on its way, if that takes no wait. Whether it is, or was."""
        try:
            flight = cast("Sender", self._store).send([write for write, _ in batch])
        except Exception:  # noqa: BLE001 - the thread will meet it, too
            return False
        if flight is None:
            return False
        landed = partial(self._landed, batch, flight)
        if flight.is_over:
            landed()
        else:
            self._watch = Watch(self._loop, flight, landed)  # type: ignore[arg-type]
        return True

    def _landed(self, batch: list[tuple[Write, Submitter]], flight: Flight) -> None:
        self._watch = None
        if flight.error is None:
            self._finish(batch, flight.outcomes)
        else:
            self._offload(batch, flight)

    def _offload(self, batch: list[tuple[Write, Submitter]], flight: Flight | None = None) -> None:
        """Commit a batch on the thread; or do what is left of it after a flight that has failed."""

        def work() -> None:
            began = perf_counter()
            result = self._commit(batch, block=True, flight=flight)
            self._average_s += (perf_counter() - began - self._average_s) / 16
            self._loop.call_soon_threadsafe(self._finish, batch, result)  # type: ignore[union-attr]

        self._thread.post(work)

    def _commit(
        self, batch: list[tuple[Write, Submitter]], *, block: bool, flight: Flight | None = None
    ) -> list[Outcome] | BaseException | None:
        writes = [write for write, _ in batch]
        try:
            if flight is not None:
                return cast("Sender", self._store).land(writes, flight)
            return self._store.commit(writes, block=block)
        except BaseException as error:  # noqa: BLE001 - sorted out in _finish, on the loop's thread
            return error

    def _finish(self, batch: list[tuple[Write, Submitter]], result: list[Outcome] | BaseException | None) -> None:
        if self.crash is not None:
            return  # whoever waited was told
        if isinstance(result, StoreUnavailable):
            self._retry_later(batch, result)
            return
        if isinstance(result, StoreError):
            result = [Failed(result)] * len(batch)
        if isinstance(result, BaseException) or result is None:
            self._crashed(result or RuntimeError("the store gave no answer"))
            return
        if self._failures:
            logger.warning("the database is back after %d failed attempts", self._failures)
            self._failures = 0
        self.batches += 1
        self.writes += len(batch)
        if Blocked in map(type, result):
            batch, result = self._set_aside(batch, result)
        answered = list(zip(batch, result, strict=True))
        half = len(answered)
        ahead = bool(self._queue or self._again) and not self._is_inline
        if ahead:
            self._flush()  # the store works on the next batch while this one is taken in
        elif self._sends and half >= HALVED:
            half //= 2
        try:
            self._tell(answered[:half])
            if half < len(answered) and self._queue:
                ahead = True
                self._flush()  # likewise, while the other half is taken in
        finally:  # a body may end the process
            try:
                if half < len(answered):
                    self._tell(answered[half:])
            finally:
                self._next(ahead=ahead)

    def _tell(self, answered: list[tuple[tuple[Write, Submitter], Outcome]]) -> None:
        for (write, submitter), outcome in answered:
            try:
                submitter.settled(write, outcome)
            except Exception:
                logger.exception("internal error while a confirmed write was taken in")
        self.told()

    def _next(self, *, ahead: bool) -> None:
        if ahead:
            pass  # whoever takes in that batch goes on
        elif self._queue or self._again:
            self._soon = self._loop.call_soon(self._flush)  # type: ignore[union-attr]
        else:
            self._scheduled = False
            if self._idle and not self._aside:
                _wake(self._idle)
        if not (ahead or self._aside or self._again):
            self._turns = 0
        if self._room and len(self._queue) <= self._high_water // 2:
            _wake(self._room)

    def _set_aside(
        self, batch: list[tuple[Write, Submitter]], outcomes: list[Outcome]
    ) -> tuple[list[tuple[Write, Submitter]], list[Outcome]]:
        """Keep what is blocked for later; return the rest, with its answers."""
        if not self._aside:
            self._turns += 1
            if self._turns % 100 == 10:
                logger.warning("an open transaction is in the way of what is to be written; trying again")
            pause = min(0.02 * 2 ** min(self._turns, 6), 1.0)
            self._loop.call_later(pause, self._try_again)  # type: ignore[union-attr]
        rest: list[tuple[Write, Submitter]] = []
        answers: list[Outcome] = []
        for item, outcome in zip(batch, outcomes, strict=True):
            if type(outcome) is Blocked:
                self._aside.append(item)
            else:
                rest.append(item)
                answers.append(outcome)
        return rest, answers

    def _try_again(self) -> None:
        self._again += self._aside
        self._aside = []
        if self._again and not self._scheduled:
            self._scheduled = True
            self._flush()

    def _retry_later(self, batch: list[tuple[Write, Submitter]], error: StoreUnavailable) -> None:
        """Put the batch back where it was, and try again after a pause that grows to half a second."""
        self._failures += 1
        if self._failures in (1, 10) or self._failures % 100 == 0:
            logger.warning("cannot write, trying again (attempt %d): %s", self._failures, error)
        self._queue.extendleft(reversed(batch))
        pause = min(0.02 * 2 ** min(self._failures, 6), 0.5) * random.uniform(0.5, 1.0)
        self._loop.call_later(pause, self._flush)  # type: ignore[union-attr]

    def _crashed(self, error: BaseException) -> None:
        self.crash = error
        self._clear()
        _wake(self._room)
        _wake(self._idle)
        if self.on_crash is not None:
            self.on_crash(error)
        else:
            logger.critical("the store failed and nothing is written any more", exc_info=error)

    def _clear(self) -> None:
        for waiting in (self._queue, self._aside, self._again):
            waiting.clear()


def _nothing() -> None:
    pass


async def _one_of(waiting: set[asyncio.Future[None]]) -> None:
    """Wait with others."""
    future = asyncio.get_running_loop().create_future()
    waiting.add(future)
    try:
        await future
    finally:
        waiting.discard(future)


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    """Let all go on who wait."""
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
