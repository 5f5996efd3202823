"""The second look at a batch: refuse what moved, isolate what cannot be stored, commit the rest.

All in one transaction in which what is read here stays true. Every run's true tail comes from one query; each write is
then judged in order against what the writes before it will have done. A database is seen through a `Book`; everything
else is the same for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from perdure.model.event import broken_link, tail_of
from perdure.model.status import TERMINAL
from perdure.model.write import (
    COMMITTED,
    Append,
    Blocked,
    Closed,
    Conflict,
    Counted,
    Create,
    Existing,
    Failed,
    Missing,
    Outcome,
    Outdated,
    Purge,
    Send,
    SetQueue,
    Upgrade,
)
from perdure.store.upgrade import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.model.event import Event
    from perdure.model.queue import QueueRow
    from perdure.model.run import Message, RunRow, Tombstone
    from perdure.model.write import Write

_PART = 16
"""Writes that are tried together where somebody is in the way of one of a batch."""
_CONTINUED = (Append, Create, Upgrade)
"""What adds to the log of a run, so that more may have been built on it."""


class Doubt(Exception):
    """A batch cannot be applied blindly: something in it is not as it was believed to be."""


class Standing(NamedTuple):
    """A run as the next write will find it."""

    status: str
    epoch: int
    tail: int
    """Its last seq."""


class Book(Protocol):
    """What is recorded, as the open transaction sees it."""

    def standings(self, run_ids: Sequence[str]) -> Iterable[tuple[str, Standing]]:
        """Return the runs that there are, and keep them as they are until the transaction ends."""
        ...

    def held(self, run_ids: Sequence[str]) -> Iterable[str]:
        """Return those of the runs that `standings` has passed over: somebody else is at them, and not waited for."""
        ...

    def row(self, run_id: str) -> RunRow | None:
        """Return a run."""
        ...

    def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what a purged run left."""
        ...

    def last(self, run_id: str) -> Event | None:
        """Return the end of a log."""
        ...

    def commit_id(self, run_id: str, seq: int) -> int | None:
        """Return who wrote a place of a log."""
        ...

    def inbox(self, run_id: str) -> Sequence[Message]:
        """Return the messages that wait."""
        ...

    def queue(self, name: str) -> QueueRow | None:
        """Return the settings of a queue."""
        ...

    def key_holder(self, queue: str, key: str) -> RunRow | None:
        """Return the open run that has a deduplication key."""
        ...

    def version_count(self) -> int:
        """Return the count of changes of versions, labels and routes."""
        ...

    def has_changed(self, queue: str, commit_id: int) -> bool:
        """Whether a change of a queue is recorded."""
        ...

    def attempt(self, writes: Sequence[Write]) -> None:
        """Apply writes, all of them or none; the transaction goes on either way. A `SetQueue` or `Upgrade` comes alone.

        Raises:
            Exception: they cannot be applied; nothing of them is left.
        """
        ...

    def is_blocked(self, error: Exception, writes: Sequence[Write]) -> bool:
        """Whether an error says that somebody else is in the way of one of these writes, and the others can go on."""
        ...

    def is_environment(self, error: Exception) -> bool:
        """Whether an error says nothing about the write at hand: it must not be blamed for it."""
        ...

    def translate(self, error: Exception) -> Exception | None:
        """Return what an error of the driver means; None if it is not one."""
        ...


class Settlement:
    """One batch on its second look."""

    def __init__(self, book: Book, batch: Sequence[Write]) -> None:
        self._book = book
        self._batch = batch
        self._outcomes: list[Outcome] = [COMMITTED] * len(batch)
        self._doubtful: set[str] = set()
        """Runs that had a create or append refused: what is queued behind may build on that, or on the log there is."""
        self._runs: dict[str, Standing] = {}
        self._held: set[str] = set()
        """Runs of which nothing can be said now: somebody else is at them."""
        self._look({run_of(write): None for write in batch})

    def _look(self, run_ids: Iterable[str]) -> None:
        known = [run_id for run_id in run_ids if run_id and is_text(run_id)]
        for run_id in known:
            self._runs.pop(run_id, None)
        self._runs.update(self._book.standings(known))
        passed_over = [run_id for run_id in known if run_id not in self._runs]
        if passed_over:
            self._held.update(self._book.held(passed_over))

    def settle(self) -> list[Outcome]:
        """Apply what can be applied and answer each write."""
        self._part(range(len(self._batch)))
        return self._outcomes

    def _part(self, places: range) -> None:
        """Judge and apply a part of the batch; if the database refuses it for an unknown reason, halve it."""
        before = dict(self._runs), set(self._doubtful)
        try:
            accepted, rest = self._judge(places)
            if accepted:
                self._book.attempt([self._batch[place] for place in accepted])
        except Exception as error:
            is_blocked = self._book.is_blocked(error, [self._batch[place] for place in places])
            if self._book.is_environment(error) and not is_blocked:
                raise
            self._runs, self._doubtful = before
            if is_blocked:
                self._one_by_one(places)
                return
            if len(places) == 1:
                self._alone(places[0], error)
                return
            middle = places.start + len(places) // 2
            self._part(range(places.start, middle))
            self._part(range(middle, places.stop))
            return
        if rest is not None:
            self._part(range(rest, places.stop))

    def _one_by_one(self, places: range) -> None:
        """Apply small parts, and of those that are blocked each write by itself.

        Halving would find it in as few tries, but each that is blocked may cost a wait.
        """
        if len(places) > 1:
            size = _PART if len(places) > _PART else 1
            for start in range(places.start, places.stop, size):
                self._part(range(start, min(start + size, places.stop)))
            return
        run_id = run_of(self._batch[places[0]])
        self._outcomes[places[0]] = Blocked(run_id)
        self._held.add(run_id)

    def _alone(self, place: int, error: Exception) -> None:
        """Answer a write that the database refuses: somebody else may have been first, else it is to blame itself."""
        write = self._batch[place]
        self._look([run_of(write)])
        try:
            outcome = self._answer(write)
        except Exception as second:
            if self._book.is_environment(second):
                raise
            outcome = None
        if outcome is None:
            self._look([run_of(write)])
            outcome = Failed(self._book.translate(error) or error)
        self._outcomes[place] = outcome
        if outcome is not COMMITTED and isinstance(write, _CONTINUED):
            self._doubtful.add(run_of(write))

    def _judge(self, places: range) -> tuple[list[int], int | None]:
        """Return the places to apply, and the first place that cannot be judged before they are."""
        accepted: list[int] = []
        touched: set[str] = set()
        for place in places:
            write = self._batch[place]
            run_id = run_of(write)
            alone = isinstance(write, SetQueue | Upgrade)  # what comes behind it obeys
            if alone and accepted:
                return accepted, place
            if (run_id in touched and self._must_look(write, run_id)) or (touched and _asks_for_a_key(write)):
                return accepted, place
            outcome = self._answer(write)
            self._outcomes[place] = COMMITTED if outcome is None else outcome
            if outcome is None:
                accepted.append(place)
                touched.add(run_id)
                if alone:
                    return accepted, place + 1
            elif outcome is not COMMITTED and isinstance(write, _CONTINUED):
                self._doubtful.add(run_id)
        return accepted, None

    def _must_look(self, write: Write, run_id: str) -> bool:
        """Whether a write's answer is in the database only once the earlier writes of its run are."""
        state = self._runs.get(run_id)
        return (
            state is None
            or isinstance(write, Create)
            or run_id in self._doubtful
            or (isinstance(write, Append) and write.events[0].seq <= state.tail)
        )

    def _answer(self, write: Write) -> Outcome | None:
        """Return the refusal of a write, `COMMITTED` if it is there already, or None if it is to be applied."""
        if self._held and run_of(write) in self._held:
            return Blocked(run_of(write))
        match write:
            case Append():
                return self._append(write)
            case Create():
                return self._create(write)
            case Send():
                return self._open(write.message.run_id)
            case Purge():
                return self._purge(write)
            case Upgrade():
                return self._upgrade(write)
            case SetQueue():
                return None

    def _append(self, write: Append) -> Outcome | None:
        state = self._runs.get(write.run_id)
        if state is None:
            return Conflict(None)
        first, last = write.events[0], write.events[-1]
        if last.seq <= state.tail and self._is_there(first, last):
            return COMMITTED
        if first.seq != state.tail + 1:
            return Conflict(state.tail)
        if write.run_id in self._doubtful and not self._continues(write):
            return Conflict(state.tail)
        change = write.change
        if change is None:
            self._runs[write.run_id] = state._replace(tail=last.seq)
        elif (change.before, change.epoch_before) != (state.status, state.epoch):
            return Conflict(state.tail)
        else:
            self._runs[write.run_id] = Standing(change.after, change.epoch, last.seq)
        return None

    def _upgrade(self, write: Upgrade) -> Outcome | None:
        run_id = write.append.run_id
        before = self._runs.get(run_id)
        outcome = self._append(write.append)
        if outcome is not None or before is None:
            return outcome
        row = self._book.row(run_id)
        outcome = Conflict(None) if row is None else refusal(write, row, before.tail, self._book.version_count)
        if outcome is not None:
            self._runs[run_id] = before
        return outcome

    def _continues(self, write: Append) -> bool:
        """Whether an append builds on the log that is there, and not on what was refused: its chain tells.

        A repeated start, or an operator who was too late, is refused; the run may go on in the very same batch.
        """
        last = self._book.last(write.run_id)
        return last is not None and broken_link(write.run_id, tail_of(last), write.events) is None

    def _is_there(self, *events: Event) -> bool:
        """Whether these very events were stored before: by their own ids, which no other writer uses."""
        return all(self._book.commit_id(one.run_id, one.seq) == one.commit_id for one in events)

    def _create(self, write: Create) -> Outcome | None:
        row = self._book.row(write.row.id) or self._book.tombstone(write.row.id)
        if row is not None:
            return COMMITTED if self._is_there(write.events[0], write.events[-1]) else Existing(row)
        refusal = self._queue_refuses(write) or self._version_refuses(write)
        if refusal is not None:
            return refusal
        self._runs[write.row.id] = Standing(write.row.status, write.row.epoch, len(write.events))
        return None

    def _queue_refuses(self, write: Create) -> Outcome | None:
        row, key = write.row, write.deduplication_key
        if row.owner is not None:
            settings = self._book.queue(row.queue)
            if settings is not None and settings.is_counted:
                return Counted(row.queue)
        holder = None if key is None else self._book.key_holder(row.queue, key)
        return None if holder is None else Existing(holder)

    def _version_refuses(self, write: Create) -> Outcome | None:
        if write.version_count is None:
            return None
        count = self._book.version_count()
        return None if count == write.version_count else Outdated(count)

    def _open(self, run_id: str) -> Outcome | None:
        state = self._runs.get(run_id)
        if state is None:
            return Missing(self._book.tombstone(run_id))
        return Closed(state.status) if state.status in TERMINAL else None

    def _purge(self, write: Purge) -> Outcome | None:
        state = self._runs.get(write.run_id)
        if state is None:
            return Missing(self._book.tombstone(write.run_id))
        if state.status not in TERMINAL:
            return Closed(state.status)
        del self._runs[write.run_id]
        return None


def run_of(write: Write) -> str:
    """Return the id of the run a write is about."""
    match write:
        case Create():
            return write.row.id
        case Send():
            return write.message.run_id
        case Upgrade():
            return write.append.run_id
        case _:
            return "" if isinstance(write, SetQueue) else write.run_id


def _asks_for_a_key(write: Write) -> bool:
    """Whether a write may depend on another run: the one that has its deduplication key."""
    return isinstance(write, Create) and write.deduplication_key is not None


def is_text(run_id: str) -> bool:
    """Whether an id can be in a database at all; half a surrogate pair cannot."""
    try:
        run_id.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_happened(book: Book, batch: Sequence[Write], outcomes: Sequence[Outcome] = ()) -> bool | None:
    """Find out by our own ids whether a transaction that carried ``batch`` was committed. One write tells of all.

    None: there is nothing to tell it by.
    """
    sent = None
    for place, write in enumerate(batch):
        if outcomes and outcomes[place] is not COMMITTED:
            continue
        match write:
            case Append() | Create() | Upgrade():
                last = (write.append if isinstance(write, Upgrade) else write).events[-1]
                return book.commit_id(last.run_id, last.seq) == last.commit_id
            case Purge():
                grave = book.tombstone(write.run_id)
                return grave is not None and grave.purged_at == write.at
            case Send():
                # Not there does not mean never there: its run may have taken it in meanwhile.
                message = write.message
                sent = sent or any(one._replace(n=message.n) == message for one in book.inbox(message.run_id)) or None
            case SetQueue():
                # Not there does not mean never there: it may have changed nothing.
                sent = sent or book.has_changed(write.queue, write.commit_id) or None
    return sent
