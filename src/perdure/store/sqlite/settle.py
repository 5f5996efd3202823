"""The second look at a batch: refuse what moved, isolate what cannot be stored, commit the rest.

All in one transaction that holds the write lock, so what is read here stays true until it ends. Every run's true tail
comes from one query; each write is then judged in order against what the writes before it will have done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.model.event import Event, broken_link, tail_of
from perdure.model.queue import QueueRow
from perdure.model.run import Message
from perdure.model.status import TERMINAL
from perdure.model.write import (
    COMMITTED,
    Append,
    Closed,
    Conflict,
    Counted,
    Create,
    Existing,
    Failed,
    Missing,
    Outcome,
    Purge,
    Send,
    SetQueue,
)
from perdure.store.sqlite.batch import Doubt, Tails, apply, fetch, is_text, run_row, tombstone
from perdure.store.sqlite.fault import ENVIRONMENT, translate
from perdure.store.sqlite.queues import set_queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from perdure.model.write import Write


class _State(NamedTuple):
    """A run as the next write of the batch will find it."""

    status: str
    epoch: int
    tail: int


class Settlement:
    """One batch on its second look."""

    def __init__(self, connection: apsw.Connection, batch: Sequence[Write], now: int, tails: Tails) -> None:
        self._connection = connection
        self._tails = tails
        self._batch = batch
        self._now = now
        self._outcomes: list[Outcome] = [COMMITTED] * len(batch)
        self._doubtful: set[str] = set()
        """Runs that had a create or append refused: what is queued behind may build on that, or on the log there is."""
        ids = [run_id for run_id in {run_of(write): None for write in batch} if is_text(run_id)]
        rows = fetch(connection, "tails", msgspec.json.encode(ids).decode())
        self._runs = {run_id: _State(status, epoch, tail or 0) for run_id, status, epoch, tail in rows}

    def settle(self) -> list[Outcome]:
        """Apply what can be applied and answer each write."""
        self._part(range(len(self._batch)))
        return self._outcomes

    def _part(self, places: range) -> None:
        """Judge and apply a part of the batch; if the database refuses it for an unknown reason, halve it."""
        before = dict(self._runs), set(self._doubtful)
        try:
            accepted, rest = self._judge(places)
            self._apply(accepted)
        except ENVIRONMENT:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is narrowed down to one write
            self._runs, self._doubtful = before
            if len(places) == 1:
                self._fail(places[0], error)
                return
            middle = places.start + len(places) // 2
            self._part(range(places.start, middle))
            self._part(range(middle, places.stop))
            return
        if rest is not None:
            self._part(range(rest, places.stop))

    def _apply(self, accepted: list[int]) -> None:
        if not accepted:
            return
        connection = self._connection
        connection.execute("savepoint part")
        try:
            writes = [self._batch[place] for place in accepted]
            if isinstance(writes[0], SetQueue):
                outcomes: list[Outcome] = [set_queue(connection, writes[0])]
            else:
                outcomes = apply(connection, writes, self._now, self._tails)
            if any(outcome is not COMMITTED for outcome in outcomes):
                raise Doubt  # noqa: TRY301 - handled like what the database finds
        except ENVIRONMENT:
            raise
        except Exception:
            self._tails.clear()
            connection.execute("rollback to part")
            connection.execute("release part")
            raise
        connection.execute("release part")

    def _fail(self, place: int, error: Exception) -> None:
        write = self._batch[place]
        if isinstance(write, Append | Create):
            self._doubtful.add(run_of(write))
        self._outcomes[place] = Failed(translate(error) or error)

    def _judge(self, places: range) -> tuple[list[int], int | None]:
        """Return the places to apply, and the first place that cannot be judged before they are."""
        accepted: list[int] = []
        touched: set[str] = set()
        for place in places:
            write = self._batch[place]
            run_id = run_of(write)
            if isinstance(write, SetQueue):  # by itself: what comes behind it obeys
                return (accepted, place) if accepted else ([place], place + 1)
            if (run_id in touched and self._must_look(write, run_id)) or (touched and _asks_for_a_key(write)):
                return accepted, place
            outcome = self._answer(write)
            self._outcomes[place] = outcome or COMMITTED
            if outcome is None:
                accepted.append(place)
                touched.add(run_id)
            elif outcome is not COMMITTED and isinstance(write, Append | Create):
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
        match write:
            case Append():
                return self._append(write)
            case Create():
                return self._create(write)
            case Send():
                return self._open(write.message.run_id)
            case Purge():
                return self._purge(write)
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
            self._runs[write.run_id] = _State(change.after, change.epoch, last.seq)
        return None

    def _continues(self, write: Append) -> bool:
        """Whether an append builds on the log that is there, and not on what was refused: its chain tells.

        A repeated start, or an operator who was too late, is refused; the run may go on in the very same batch.
        """
        last = fetch(self._connection, "load_tail", write.run_id, 1)
        return bool(last) and broken_link(write.run_id, tail_of(Event._make(last[0])), write.events) is None

    def _is_there(self, *events: Event) -> bool:
        """Whether these very events were stored before: by their own ids, which no other writer uses."""
        return all(fetch(self._connection, "commit_at", one.run_id, one.seq) == [(one.commit_id,)] for one in events)

    def _create(self, write: Create) -> Outcome | None:
        row = run_row(self._connection, write.row.id) or tombstone(self._connection, write.row.id)
        if row is not None:
            return COMMITTED if self._is_there(write.events[0], write.events[-1]) else Existing(row)
        refusal = self._queue_refuses(write)
        if refusal is not None:
            return refusal
        self._runs[write.row.id] = _State(write.row.status, write.row.epoch, len(write.events))
        return None

    def _queue_refuses(self, write: Create) -> Outcome | None:
        row = write.row
        if row.owner is not None:
            found = fetch(self._connection, "get_queue", row.queue)
            if found and QueueRow._make(found[0]).is_counted:
                return Counted(row.queue)
        if write.deduplication_key is not None:
            for (run_id,) in fetch(self._connection, "key_holder", row.queue, write.deduplication_key):
                holder = run_row(self._connection, run_id)
                return None if holder is None else Existing(holder)
        return None

    def _open(self, run_id: str) -> Outcome | None:
        state = self._runs.get(run_id)
        if state is None:
            return Missing(tombstone(self._connection, run_id))
        return Closed(state.status) if state.status in TERMINAL else None

    def _purge(self, write: Purge) -> Outcome | None:
        state = self._runs.get(write.run_id)
        if state is None:
            return Missing(tombstone(self._connection, write.run_id))
        if state.status not in TERMINAL:
            return Closed(state.status)
        del self._runs[write.run_id]
        return None


def _asks_for_a_key(write: Write) -> bool:
    """Whether a write may depend on another run: the one that has its deduplication key."""
    return isinstance(write, Create) and write.deduplication_key is not None


def run_of(write: Write) -> str:
    """Return the id of the run a write is about."""
    match write:
        case Create():
            return write.row.id
        case Send():
            return write.message.run_id
        case SetQueue():
            return ""
        case _:
            return write.run_id


def has_happened(connection: apsw.Connection, batch: Sequence[Write], outcomes: Sequence[Outcome] = ()) -> bool | None:
    """Find out by our own ids whether a transaction that carried ``batch`` was committed. One write tells of all.

    None: there is nothing to tell it by.
    """
    sent = None
    for place, write in enumerate(batch):
        if outcomes and outcomes[place] is not COMMITTED:
            continue
        match write:
            case Append() | Create():
                last = write.events[-1]
                return fetch(connection, "commit_at", last.run_id, last.seq) == [(last.commit_id,)]
            case Purge():
                grave = tombstone(connection, write.run_id)
                return grave is not None and grave.purged_at == write.at
            case Send():
                # Not there does not mean never there: its run may have taken it in meanwhile.
                message = write.message
                waiting = [Message._make(row) for row in fetch(connection, "inbox", message.run_id)]
                sent = sent or any(one._replace(n=message.n) == message for one in waiting) or None
            case SetQueue():
                # Not there does not mean never there: it may have changed nothing.
                sent = sent or bool(fetch(connection, "change_by", write.queue, write.commit_id)) or None
    return sent
