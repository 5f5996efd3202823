"""The settings of queues, and what a queue has in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.model.filter import CHANGES_SHOWN, QueueState
from perdure.model.queue import QueueChange, QueueRow, Usage, rate_bucket, revised
from perdure.model.write import COMMITTED, Committed
from perdure.store.sqlite.batch import SQL, fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import apsw

    from perdure.model.claim import Claimed
    from perdure.model.filter import QueueStats
    from perdure.model.write import SetQueue


class QueueBook(NamedTuple):
    """The settings of all queues as of one moment. Replaced as a whole, so that any thread may read it."""

    version: int
    rows: dict[str, QueueRow]
    counted: frozenset[str]
    """Queues whose runs are not claimed as they are created."""


UNREAD = QueueBook(-1, {}, frozenset())


def read_book(connection: apsw.Connection, version: int, known: QueueBook = UNREAD) -> QueueBook:
    """Return the settings, which have the given version; ``known`` if that is them."""
    if version == known.version:
        return known
    rows = {row[0]: QueueRow._make(row) for row in fetch(connection, "queues")}
    return QueueBook(version, rows, frozenset(name for name, row in rows.items() if row.is_counted))


def set_queue(connection: apsw.Connection, write: SetQueue) -> Committed:
    """Change settings, record who did, and count the runs that are owned."""
    if fetch(connection, "change_by", write.queue, write.commit_id):
        return COMMITTED
    found = fetch(connection, "get_queue", write.queue)
    before = QueueRow._make(found[0]) if found else None
    result = revised(before, write)
    if result is None:
        return COMMITTED
    after, change = result
    forget_ended(connection, before)
    connection.execute(SQL["put_queue"], after)
    connection.execute(SQL["insert_change"], change)
    connection.execute(SQL["bump_queues"])
    forget_ended(connection, after)
    if after.is_limited:
        connection.execute(SQL["fill_slots"], (write.queue,))
    return COMMITTED


class Slots(NamedTuple):
    """Who has a place in a queue's limits."""

    usage: Usage
    holders: frozenset[str]
    returning: tuple[str, ...]
    """Holders that wait and are due."""
    ended: tuple[str, ...]
    """Runs whose place does not count any more."""
    starts: tuple[tuple[int, int], ...]
    """(time, claims) in the window of the rate, oldest first."""


_NONE = Slots(Usage(), frozenset(), (), (), ())


def slots_of(connection: apsw.Connection, row: QueueRow | None, worker_id: str, now: int) -> Slots:
    """Return what a queue has in use. Costs what its limits allow, whatever waits in it."""
    if row is None or not (row.is_limited or row.rate_limit is not None):
        return _NONE
    held = fetch(connection, "slots", row.name, row.hold_while_waiting) if row.is_limited else []
    valid = [one for one in held if one[3] is not None]
    keys: dict[str, int] = {}
    for _, key, *_ in valid:
        if key is not None:
            keys[key] = keys.get(key, 0) + 1
    starts: tuple[tuple[int, int], ...] = ()
    if row.rate_limit is not None:
        starts = tuple(fetch(connection, "starts", row.name, now - (row.rate_us or 0)))
    mine = sum(one[2] == worker_id for one in valid)
    return Slots(
        Usage(len(valid), mine, keys, sum(n for _, n in starts)),
        frozenset(one[0] for one in valid),
        tuple(one[0] for one in valid if one[3] == "waiting" and one[4] is not None and one[4] <= now),
        tuple(one[0] for one in held if one[3] is None),
        starts,
    )


def opens_at(row: QueueRow, starts: Sequence[tuple[int, int]]) -> int:
    """Return when a rate that is used up lets the next run be claimed."""
    surplus = sum(n for _, n in starts) - (row.rate_limit or 0)
    last = 0
    for at, n in starts:
        surplus -= n
        if surplus < 0:
            last = at
            break
    return last + (row.rate_us or 0)


def forget_ended(connection: apsw.Connection, row: QueueRow | None) -> None:
    """Drop the places that do not count any more."""
    if row is not None:
        ended = [one[0] for one in fetch(connection, "slots", row.name, row.hold_while_waiting) if one[3] is None]
        connection.executemany(SQL["delete_slot"], ((run_id,) for run_id in ended))


def count_claims(connection: apsw.Connection, book: QueueBook, claimed: Iterable[Claimed], now: int) -> None:
    """Take a slot for each claimed run, and count it where there is a rate."""
    slots: list[tuple[str, str, int]] = []
    starts: dict[str, int] = {}
    for one in claimed:
        row = book.rows.get(one.row.queue)
        if row is None or one.parked:
            continue
        if row.is_limited:
            slots.append((one.row.id, row.name, one.row.epoch + 1))
        if row.rate_limit is not None:
            starts[row.name] = starts.get(row.name, 0) + 1
    if slots:
        connection.executemany(SQL["put_slot"], slots)
    for name, n in starts.items():
        row = book.rows[name]
        connection.execute(SQL["count_start"], (name, rate_bucket(row, now), n))
        connection.execute(SQL["forget_starts"], (name, now - (row.rate_us or 0)))


def states(connection: apsw.Connection, waiting: Iterable[QueueStats], now: int) -> tuple[QueueState, ...]:
    """Return every queue that has settings or open runs. Counts what stands in it."""
    rows = {row[0]: QueueRow._make(row) for row in fetch(connection, "queues")}
    standing, owned = (dict(fetch(connection, name)) for name in ("standing", "owned_of"))
    due: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for line in waiting:
        due[line.queue] = due.get(line.queue, 0) + line.due
        oldest[line.queue] = min(oldest.get(line.queue, line.oldest_wake_at), line.oldest_wake_at)
    found = []
    for name in sorted({*rows, *standing, *owned}):
        row, now_due = rows.get(name, QueueRow(name)), due.get(name, 0)
        usage = slots_of(connection, row, "", now).usage
        changes = tuple(QueueChange._make(one) for one in fetch(connection, "changes", name, CHANGES_SHOWN))
        later = standing.get(name, 0) - now_due
        found.append(
            QueueState(
                row, now_due, later, owned.get(name, 0), usage.total, usage.starts, oldest.get(name), changes
            )
        )  # fmt: skip
    return tuple(found)
