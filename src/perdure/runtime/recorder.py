"""The writing end of one run's log: numbers events, keeps one append in flight, merges what waits.

Rule 1 of the lock: at most one append per run is in flight; what comes meanwhile is sent when it is confirmed. A
refused append discards all that is queued before anything else is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perdure.model.event import sealed
from perdure.model.write import Append, Change, Committed, Conflict, Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Draft, Event, Tail
    from perdure.model.write import Outcome
    from perdure.runtime.ids import CommitIds
    from perdure.store.writer import Writer


class Listener(Protocol):
    """Who owns the log."""

    def recorded(self, last: Event, change: Change | None) -> None:
        """Everything up to ``last`` is durable."""
        ...

    def refused(self, reason: str) -> None:
        """The log belongs to somebody else now. Nothing more will be sent."""
        ...

    def unstorable(self, events: Sequence[Event], change: Change | None, error: Exception) -> None:
        """The first of ``events`` cannot be stored for a reason of its own; the others were behind it."""
        ...


class Recorder:
    """See the module. All methods run on the engine's event loop thread."""

    __slots__ = (
        "_append", "_at", "_chain", "_change", "_consumed", "_durable", "_ids", "_listener", "_one_by_one", "_queue",
        "_seq", "_writer", "closed", "epoch", "run_id",
    )  # fmt: skip

    def __init__(self, run_id: str, epoch: int, tail: Tail, writer: Writer, ids: CommitIds, listener: Listener) -> None:
        self.run_id: str = run_id
        self.epoch: int = epoch
        self.closed: bool = False
        self._seq, self._at, self._chain = tail
        self._durable: Tail | Event = tail
        self._writer = writer
        self._ids = ids
        self._listener: Listener | None = listener
        self._queue: list[Event] = []
        self._append: Append | None = None
        self._change: Change | None = None
        self._consumed: list[int] = []
        self._one_by_one = 0
        """So many events are sent each by itself, to find the one that the database refuses."""

    @property
    def busy(self) -> bool:
        """Whether anything is not yet durable."""
        return self._append is not None or bool(self._queue)

    def add(self, draft: Draft, change: Change | None = None, consumed: int | None = None) -> Event:
        """Give ``draft`` its place in the log and send it as soon as the run's turn comes.

        Args:
            draft: the event.
            change: the change of the run row it implies; nothing can be added after it.
            consumed: number of the inbox message it takes in.
        """
        seq = self._seq = self._seq + 1
        at = draft.at
        if at < self._at:
            at = self._at
        else:
            self._at = at
        event = sealed(self.run_id, seq, draft, at, self.epoch, self._ids.take(), self._chain)
        self._chain = event.chain
        if self._append is None and change is None and consumed is None and not self._queue:  # nearly always
            append = self._append = Append(self.run_id, (event,))
            self._writer.submit(append, self)
            return event
        self._queue.append(event)
        if consumed is not None:
            self._consumed.append(consumed)
        if change is not None:
            self._change = change
            self.closed = True
        if self._append is None:
            self._send()
        return event

    def rewind(self, event: Event) -> None:
        """Make ``event``'s place the next one again; nothing is in flight and the queue is empty."""
        self._seq, self._at, self._chain = self._durable.seq, self._durable.at, self._durable.chain
        self.closed = False
        assert event.seq == self._seq + 1  # noqa: S101 - one append in flight, and it was refused

    def discard(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._queue.clear()
        self._consumed.clear()
        self._change = None

    def release(self) -> None:
        """Discard everything and tell nobody any more."""
        self.discard()
        self._listener = None

    def settled(self, write: Append, outcome: Outcome) -> None:
        """Take the writer's answer to the append in flight."""
        self._append = None
        listener = self._listener
        if type(outcome) is Committed:
            last = self._durable = write.events[-1]
            if self._queue:
                self._send()
            if listener is not None:
                listener.recorded(last, write.change)
            return
        if isinstance(outcome, Failed) and listener is not None:
            self._find_unstorable(write, outcome.error, listener)
            return
        self.discard()
        if listener is None:
            return
        if isinstance(outcome, Conflict):
            listener.refused(f"its log has moved on to event {outcome.tail}")
        else:
            listener.refused("it was purged")

    def _find_unstorable(self, append: Append, error: Exception, listener: Listener) -> None:
        """Send a refused append again, event by event; what is refused by itself is handed over with all behind it."""
        events = [*append.events, *self._queue]
        change = append.change or self._change
        self._consumed = [*append.consumed, *self._consumed]
        if len(append.events) > 1:
            self._queue, self._change, self._one_by_one = events, change, len(append.events)
            self._send()
        else:
            self._queue, self._change = [], None
            listener.unstorable(events, change, error)

    def _send(self) -> None:
        if self._one_by_one and len(self._queue) > 1:
            self._one_by_one -= 1
            append = self._append = Append(self.run_id, (self._queue.pop(0),))
            self._writer.submit(append, self)
            return
        queue, self._queue = self._queue, []
        consumed: tuple[int, ...] = ()
        if self._consumed:
            consumed, self._consumed = tuple(self._consumed), []
        change, self._change = self._change, None
        append = self._append = Append(self.run_id, tuple(queue), change, consumed)
        self._writer.submit(append, self)
