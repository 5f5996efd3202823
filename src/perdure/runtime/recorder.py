"""The writing end of one run's log: numbers events, keeps one append in flight, merges what waits.

Rule 1 of the lock: at most one append per run is in flight; what comes meanwhile is sent when it is confirmed. A
refused append discards all that is queued before anything else is sent.

A transaction of the user's may bring its event itself (`Place`): then that is the append in flight, from when all
before it is durable until it is known how the transaction ended.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from perdure.errors import GuardError
from perdure.model.event import sealed
from perdure.model.write import COMMITTED, Append, Change, Committed, Conflict, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


class Place:
    """A place in the log that is filled by a transaction of the user's, when its turn has come.

    Attributes:
        event: what the transaction inserts, last of all; an exception in its stead where it must be rolled back.
        taken: whether it is known to be committed. Set by whoever has committed it.
    """

    __slots__ = ("event", "taken")

    def __init__(self) -> None:
        self.event: Future[Event] = Future()
        self.taken: bool = False

    def refuse(self) -> None:
        """Have the transaction rolled back, if it has not its turn yet."""
        if not self.event.done():
            self.event.set_exception(GuardError("the step ended too late; its transaction was rolled back"))

    @property
    def is_lent(self) -> bool:
        """Whether the log waits for the end of the transaction."""
        return self.event.done() and self.event.exception() is None


class Recorder:
    """See the module. All methods run on the engine's event loop thread."""

    __slots__ = (
        "_append", "_at", "_chain", "_change", "_consumed", "_durable", "_listener", "_one_by_one", "_places", "_queue",
        "_sent", "_seq", "_take_id", "_writer", "closed", "epoch", "run_id",
    )  # fmt: skip

    def __init__(
        self, run_id: str, epoch: int, tail: Tail | Event, writer: Writer, ids: CommitIds, listener: Listener
    ) -> None:
        self.run_id: str = run_id
        self.epoch: int = epoch
        self.closed: bool = False
        self._seq, self._at, self._chain = tail.seq, tail.at, tail.chain
        self._durable: Tail | Event = tail
        self._writer = writer
        self._take_id: Callable[[], int] = ids.take
        self._listener: Listener | None = listener
        self._queue: list[Event] = []
        self._append: Append | None = None
        self._change: Change | None = None
        self._consumed: list[tuple[int, int]] = []
        """Place of an event, and the inbox message that it takes in."""
        self._sent: list[tuple[int, int]] = []
        """The same, of the append in flight."""
        self._places: dict[int, Place] | None = None
        """By seq: queued, or in flight. None before there was any."""
        self._one_by_one = 0
        """So many events are sent each by itself, to find the one that the database refuses."""

    @property
    def busy(self) -> bool:
        """Whether anything is not yet durable."""
        return self._append is not None or bool(self._queue)

    def add(
        self, draft: Draft, change: Change | None = None, consumed: int | None = None, place: Place | None = None
    ) -> Event:
        """Give ``draft`` its place in the log and send it as soon as the run's turn comes.

        Args:
            draft: the event.
            change: the change of the run row it implies; nothing can be added after it.
            consumed: number of the inbox message it takes in.
            place: who brings it into the log, in a transaction of his own.
        """
        seq = self._seq = self._seq + 1
        at = draft.at
        if at < self._at:
            at = self._at
        else:
            self._at = at
        take_id = self._take_id
        event = sealed(self.run_id, seq, draft, at, self.epoch, take_id(), self._chain)
        self._chain = event.chain
        if place is not None:
            self._places = {**(self._places or {}), seq: place}
        if change is not None:
            self.closed = True
        if self._append is None and consumed is None and not (self._queue or self._places or self._consumed):
            append = self._append = Append(self.run_id, (event,), change)  # nearly always
            self._writer.submit(append, self)
            return event
        self._queue.append(event)
        if consumed is not None:
            self._consumed.append((seq, consumed))
        if change is not None:
            self._change = change
        if self._append is None:
            self._send()
        return event

    def rewind(self, event: Event) -> None:
        """Make ``event``'s place the next one again; nothing is in flight and the queue is empty."""
        self._seq, self._at, self._chain = self._durable.seq, self._durable.at, self._durable.chain
        self.closed = False
        assert event.seq == self._seq + 1  # noqa: S101 - one append in flight, and it was refused

    def leave_messages(self) -> None:
        """Leave the messages in the inbox whose events were not sent: whoever has the run next takes them in."""
        self._consumed.clear()

    # -- transactions of the user's ------------------------------------------------------------------------------

    def joined(self) -> None:
        """Take the event in flight as durable: its transaction was committed."""
        self._end_place(COMMITTED)

    def outrun(self) -> None:
        """Take the place in flight as somebody else's: the transaction met another event there."""
        assert self._append is not None  # noqa: S101 - it is lent
        self._end_place(Conflict(self._append.events[0].seq))

    def vacate(self) -> tuple[list[Event], Change | None]:
        """Take the place in flight back, whose transaction was not committed.

        Returns what waits behind it, to be added again once something else has that place.
        """
        behind, change = self._queue, self._change
        self._queue, self._change = [], None
        self._forget_place()
        self._append = None
        return behind, change

    def _end_place(self, outcome: Outcome) -> None:
        append = self._append
        if append is not None:  # else the run was dropped meanwhile
            self._forget_place()
            self.settled(append, outcome)

    def _forget_place(self) -> None:
        if self._append is not None and self._places:
            self._places.pop(self._append.events[0].seq, None)

    def discard(self) -> None:
        """Send nothing more."""
        self.closed = True
        if self._places:
            for place in self._places.values():
                place.refuse()
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
            if self._sent:
                self._sent = []
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
        self._consumed = [*self._sent, *self._consumed]
        if len(append.events) > 1:
            self._queue, self._change, self._one_by_one = events, change, len(append.events)
            self._send()
        else:
            self._queue, self._change = [], None
            listener.unstorable(events, change, error)

    def _send(self) -> None:
        queue, rest = self._queue, []
        if self._places:
            place = self._places.get(queue[0].seq)
            if place is not None:
                event = queue.pop(0)
                self._append, self._sent = Append(self.run_id, (event,)), []
                place.event.set_result(event)
                return
            rest = queue[next((n for n, event in enumerate(queue) if event.seq in self._places), len(queue)) :]
            queue = queue[: len(queue) - len(rest)]
        if self._one_by_one and len(queue) > 1:
            self._one_by_one -= 1
            queue, rest = queue[:1], [*queue[1:], *rest]
        self._queue = rest
        change = None
        if not rest:
            change, self._change = self._change, None
        consumed = self._sent = self._consumed
        if consumed:
            last = queue[-1].seq
            consumed = self._sent = [one for one in self._consumed if one[0] <= last]
            self._consumed = [one for one in self._consumed if one[0] > last]
        append = self._append = Append(self.run_id, tuple(queue), change, tuple(number for _, number in consumed))
        self._writer.submit(append, self)
