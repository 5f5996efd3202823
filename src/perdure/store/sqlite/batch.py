"""The hot path of a commit: many writes as few statements.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order. Whatever is unusual
(a taken place, a state that moved, an id that exists) raises `Doubt` or a driver error, and
`perdure.store.settle` does the batch again with its eyes open.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import StoreCorrupt
from perdure.model.event import Event
from perdure.model.run import RunRow, Tombstone
from perdure.model.write import (
    COMMITTED,
    Append,
    Closed,
    Create,
    Missing,
    Outcome,
    Purge,
    Send,
    SetQueue,
    Upgrade,
    Write,
)
from perdure.store.settle import Doubt
from perdure.store.sqltext import queries
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from perdure.model.run import Message
    from perdure.model.write import Change

SQL = queries("sqlite", one_of="in (select value from json_each(?))")
_SIZES = (64, 32, 16, 8, 4, 2, 1)
"""Rows per statement: few statements, because each gives the GIL up once and a busy event loop is slow to give it back;
and few sizes, so that all of them stay prepared."""


def _statements(head: str, row: str, tail: str = "") -> dict[int, str]:
    return {n: f"{SQL[head]} {', '.join([SQL[row]] * n)}{tail}" for n in _SIZES}


_INSERT_EVENT = _statements("insert_event", "event_row")
_INSERT_RUN = _statements("insert_run", "run_row")
_COUNT_EVENT = _statements("count_event", "event_place", ")")
_CHANGE_RUN = _statements("change_run", "change_row", f" {SQL['change_end']}")
_PLAIN = frozenset({Append, Create})
_WAKEABLE = frozenset({"pending", "waiting"})
_json = msgspec.json.encode


_Values = tuple[str | bytes | int | None, ...]


def apply(connection: apsw.Connection, batch: Sequence[Write], now: int, tails: Tails) -> list[Outcome]:
    """Apply a batch inside the open transaction and answer each write.

    Args:
        connection: in a write transaction.
        batch: what to apply.
        now: the common clock.
        tails: must be cleared if the transaction does not commit.

    Raises:
        Doubt: something in the batch is not as it was believed to be; the transaction must be rolled back.
        apsw.Error: likewise, found by the database.
    """
    if not _PLAIN.issuperset(map(type, batch)):
        return _mixed(connection, batch, now, tails)
    plain(connection, batch, now, tails)
    return [COMMITTED] * len(batch)


def plain(connection: apsw.Connection, batch: Sequence[Write], now: int, tails: Tails) -> None:
    """Apply creates and appends: all of them or none.

    Raises:
        Doubt: see `apply`.
    """
    events: list[Event] = []
    creates: list[Create] = []
    changes: list[tuple[str, Change]] = []
    consumed: list[_Values] = []
    unsure: list[tuple[str, int]] = []
    unnumbered: list[str] = []
    numbers = tails.numbers
    for write in batch:
        if isinstance(write, Append):
            run_id, new, change = write.run_id, write.events, write.change
            events += new
            before = new[0].seq - 1
            if tails.get(run_id) != before:
                unsure.append((run_id, before))
            if run_id not in numbers:
                unnumbered.append(run_id)
            tails[run_id] = before + len(new)
            if change is not None:
                changes.append((run_id, change))
            if write.consumed:
                consumed.extend((run_id, n) for n in write.consumed)
        elif isinstance(write, Create):
            creates.append(write)
            events += write.events
            tails.born(write)
    if creates:
        _create(connection, creates, batch, tails)
    _insert_events(connection, events, numbers, unnumbered)
    if unsure:
        _check_gap(connection, unsure, numbers)
    if changes:
        _apply_changes(connection, changes, now)
    if consumed:
        connection.executemany(SQL["take_message"], consumed)
    tails.count(len(batch) - len(creates), len(unsure))


def _apply_changes(connection: apsw.Connection, changes: Sequence[tuple[str, Change]], now: int) -> None:
    sizes = _SIZES if len({run_id for run_id, _ in changes}) == len(changes) else (1,)
    rows = [_change(run_id, change, now) for run_id, change in changes]
    total, start, changed = len(rows), 0, 0
    for size in sizes:
        while total - start >= size:
            connection.execute(_CHANGE_RUN[size], tuple(chain.from_iterable(rows[start : start + size])))
            changed += connection.changes()  # of runs; not what triggers did
            start += size
    if changed != total:
        raise Doubt
    for _, change in changes:
        if change.tell is not None:
            send(connection, change.tell, now)  # whoever has ended does not get it


def _insert_events(
    connection: apsw.Connection, events: Sequence[Event], numbers: dict[str, int], unnumbered: list[str]
) -> None:
    if unnumbered:
        numbers.update(fetch(connection, "numbers", _json(unnumbered).decode()))
    total, start = len(events), 0
    for size in _SIZES:
        while total - start >= size:
            values: list[str | bytes | int | None] = []
            try:
                for event in events[start : start + size]:
                    values.append(numbers[event[0]])
                    values += event[1:]
            except KeyError:
                raise Doubt from None  # there is no such run
            connection.execute(_INSERT_EVENT[size], values)
            start += size


def _check_gap(connection: apsw.Connection, unsure: Sequence[tuple[str, int]], numbers: dict[str, int]) -> None:
    """Refuse an append that skips a place: the key would take it, and the log would have a hole for ever."""
    places = [(numbers[run_id], seq) for run_id, seq in unsure]
    if sum(row[0] for row in _execute(connection, _COUNT_EVENT, places)) != len(places):
        raise Doubt


def _change(run_id: str, change: Change, now: int) -> _Values:
    after = change.after
    return (
        after, change.epoch, change.owner, after in _WAKEABLE, change.inbox_seen, change.wake_at, now, change.detail,
        change.at, run_id, change.before, change.epoch_before,
    )  # fmt: skip


def _create(connection: apsw.Connection, creates: list[Create], batch: Sequence[Write], tails: Tails) -> None:
    ids = [create.row.id for create in creates]
    if len(creates) != len(batch):
        _check_order(batch, ids)
    stale = [create.row.id for create in creates if not create.fresh]
    if stale and fetch(connection, "taken", _json(stale).decode()):
        raise Doubt
    expected = {create.version_count for create in creates if create.version_count is not None}
    if expected:
        if tails.version_count is None:
            tails.version_count = fetch(connection, "version_count")[0][0]
        if expected != {tails.version_count}:
            raise Doubt
    last = tails.last_number
    if last is None:
        last = fetch(connection, "last_number")[0][0]
    tails.last_number = last + len(creates)
    rows = [(number, *create.row) for number, create in enumerate(creates, last + 1)]
    _execute(connection, _INSERT_RUN, rows)
    tails.numbers.update({row[1]: row[0] for row in rows})
    tags = [(key, value, create.row.id) for create in creates for key, value in create.tags]
    if tags:
        connection.executemany(SQL["insert_tag"], tags)
    unique = [(one.row.queue, one.deduplication_key, one.row.id) for one in creates if one.deduplication_key]
    if unique:
        before = connection.total_changes()
        connection.executemany(SQL["take_key"], unique)
        if connection.total_changes() - before != len(unique):
            raise Doubt


def _check_order(batch: Sequence[Write], ids: list[str]) -> None:
    """Refuse an append before the create of its run: grouped, it would see a run that is not there yet."""
    ahead = set(ids)
    for write in batch:
        if isinstance(write, Create):
            ahead.discard(write.row.id)
        elif isinstance(write, Append) and write.run_id in ahead:
            raise Doubt


def _execute(connection: apsw.Connection, statements: dict[int, str], rows: Sequence[_Values]) -> list[Any]:
    """Run a statement over any number of rows and return all results."""
    total, start = len(rows), 0
    if total == 1:
        return connection.execute(statements[1], rows[0]).fetchall()
    results: list[Any] = []
    for size in _SIZES:
        while total - start >= size:
            part = rows[start : start + size]
            results += connection.execute(statements[size], tuple(chain.from_iterable(part))).fetchall()
            start += size
    return results


def _mixed(connection: apsw.Connection, batch: Sequence[Write], now: int, tails: Tails) -> list[Outcome]:
    """Apply a batch that has sends or purges, each after what comes before it for the same run."""
    outcomes: list[Outcome] = [COMMITTED] * len(batch)
    waiting: list[Write] = []
    touched: set[str] = set()
    for place, write in enumerate(batch):
        if isinstance(write, Send | Purge):
            if (write.message.run_id if isinstance(write, Send) else write.run_id) in touched:
                plain(connection, waiting, now, tails)
                waiting, touched = [], set()
            if isinstance(write, Send):
                outcomes[place] = send(connection, write.message, now)
            else:
                outcomes[place] = purge(connection, write)
                tails.numbers.pop(write.run_id, None)
        elif isinstance(write, SetQueue | Upgrade):
            raise Doubt  # it comes alone
        else:
            waiting.append(write)
            touched.add(write.run_id if isinstance(write, Append) else write.row.id)
    plain(connection, waiting, now, tails)
    return outcomes


def send(connection: apsw.Connection, message: Message, now: int) -> Outcome:
    """Put a message into an inbox and wake the run, or say why not."""
    run_id, _, kind, sent_at, detail = message
    numbered = fetch(connection, "send", run_id, now)
    if not numbered:
        return _refusal(connection, run_id)
    connection.execute(SQL["insert_message"], (run_id, numbered[0][0], kind, sent_at, detail))
    return COMMITTED


def purge(connection: apsw.Connection, write: Purge) -> Outcome:
    """Delete a terminal run and leave a tombstone, or say why not."""
    run_id, at, actor, reason = write
    outcome = _refusal(connection, run_id)
    if isinstance(outcome, Missing) or outcome.status in _OPEN:
        return outcome
    connection.execute(SQL["insert_request"], (run_id, at, actor, reason))
    for name in ("purge_event", "purge_inbox", "purge_tag", "purge_key", "purge_slot", "purge_run"):
        connection.execute(SQL[name], (run_id,))
    return COMMITTED


_OPEN = frozenset({"pending", "running", "waiting", "paused", "parked"})


def _refusal(connection: apsw.Connection, run_id: str) -> Closed | Missing:
    found = fetch(connection, "status_of", run_id)
    return Closed(found[0][0]) if found else Missing(tombstone(connection, run_id))


def tombstone(connection: apsw.Connection, run_id: str) -> Tombstone | None:
    """Return what a purged run left."""
    found = fetch(connection, "get_request", run_id)
    return Tombstone._make(found[0]) if found else None


def run_row(connection: apsw.Connection, run_id: str) -> RunRow | None:
    """Return a run.

    Raises:
        StoreCorrupt: the index leads to another run's row.
    """
    found = fetch(connection, "get_run", run_id)
    if not found:
        return None
    row = RunRow._make(found[0])
    if row.id != run_id:
        message = "the row of the run is damaged"
        raise StoreCorrupt(message, run_id=run_id)
    return row


def fetch(connection: apsw.Connection, name: str, *values: str | bytes | int | None) -> list[tuple[Any, ...]]:
    """Run a named statement and return all rows, so that none holds a snapshot open."""
    return connection.execute(SQL[name], values).fetchall()
