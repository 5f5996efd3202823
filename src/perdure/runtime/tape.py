"""The log of one resident run as its worker sees it: what was recorded, what is durable, what was delivered.

Events are delivered strictly in the order of the log. A live event waits here until it is durable; the result of a step
with ``durability="ahead"`` may be delivered before that, but never out of order.

While many runs start what their bodies have asked for, what they record waits in the `Outbox`, and is then given its
places run after run (see `perdure.runtime.turns`).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from perdure.model.event import draft_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.model.event import Draft, Event
    from perdure.model.write import Change
    from perdure.runtime.recorder import Place, Recorder


logger: logging.Logger = logging.getLogger("perdure.run")


class Outbox:
    """What the runs of a worker record while it is open.

    Attributes:
        is_open: whether events wait here for their places.
    """

    __slots__ = ("_waiting", "is_open", "put")

    def __init__(self) -> None:
        self.is_open: bool = False
        self._waiting: list[tuple[Tape, Draft]] = []
        self.put: Callable[[tuple[Tape, Draft]], None] = self._waiting.append
        """Let an event wait."""

    def flush(self) -> None:
        """Give all that wait their places, in order."""
        waiting = self._waiting.copy()
        self._waiting.clear()
        for tape, draft in waiting:
            try:
                tape.append(draft)
            except Exception:
                logger.exception("run %s: internal error", tape.recorder.run_id)

    def close(self) -> None:
        """Let nothing wait any more."""
        self.is_open = False
        self.flush()


class Tape:
    """See the module.

    Attributes:
        recorder: the writing end.
        undelivered: events on record that the body has not seen yet, in order.
        durable: everything up to this seq is durable.
        early: events delivered before they are durable: seq to when they were added.
    """

    __slots__ = ("_outbox", "durable", "early", "recorder", "undelivered")

    def __init__(self, recorder: Recorder, outbox: Outbox) -> None:
        self.recorder: Recorder = recorder
        self._outbox = outbox
        self.undelivered: deque[Event] = deque()
        self.durable: int = 0
        self.early: dict[int, int] = {}

    def load(self, events: Iterable[Event]) -> None:
        """Put what the database holds in front of the body."""
        self.undelivered.extend(events)
        self.durable = self.undelivered[-1].seq

    def record(self, draft: Draft) -> None:
        """Append an event, now or with those of other runs; it is delivered once it is durable."""
        if self._outbox.is_open:
            self._outbox.put((self, draft))
        else:
            self.append(draft)

    def append(self, draft: Draft) -> None:
        """Append an event now. Nothing is appended to a closed log."""
        recorder = self.recorder
        if not recorder.closed:
            self.undelivered.append(recorder.add(draft))

    def record_early(self, draft: Draft) -> bool:
        """Append an event that may be delivered in its turn without waiting. Says whether the log was still open."""
        self._outbox.flush()
        if self.recorder.closed:
            return False
        event = self.recorder.add(draft)
        self.early[event.seq] = event.at
        self.undelivered.append(event)
        return True

    def reserve(self, draft: Draft, place: Place) -> None:
        """Give an event its place in an open log; a transaction of the user's brings it there."""
        self.undelivered.append(self.recorder.add(draft, place=place))

    def fill(self, event: Event, draft: Draft) -> None:
        """Append another event in the place of one whose transaction was not committed. No place is left empty.

        What waits behind it keeps its place, and is chained to what is there now.
        """
        behind, change = self.recorder.vacate()
        self.rewind(event)
        self.record_again(draft, None)
        for each in behind:
            self.record_again(draft_of(each), change if each is behind[-1] else None)

    def record_message(self, draft: Draft, number: int) -> Event:
        """Append the event that takes in an inbox message."""
        event = self.recorder.add(draft, consumed=number)
        self.undelivered.append(event)
        return event

    def record_last(self, draft: Draft, change: Change) -> None:
        """Append the event that ends this worker's ownership; it is never delivered."""
        self._outbox.flush()
        self.recorder.add(draft, change)

    def record_again(self, draft: Draft, change: Change | None) -> None:
        """Append what replaces an event that could not be stored."""
        event = self.recorder.add(draft, change)
        if change is None:
            self.undelivered.append(event)

    def rewind(self, event: Event) -> None:
        """Go back to before ``event``, which could not be stored."""
        undelivered = self.undelivered
        while undelivered and undelivered[-1].seq >= event.seq:
            undelivered.pop()
        self.recorder.rewind(event)

    def confirm(self, seq: int) -> None:
        """Note that everything up to ``seq`` is durable."""
        self.durable = seq
        if self.early:
            self.early = _later(self.early, seq)


def _later(early: dict[int, int], seq: int) -> dict[int, int]:
    return {place: at for place, at in early.items() if place > seq}
