"""What a queue has in use, and what a claim leaves behind in the tables of queues.

For every backend: statements are named, and a backend that is not listed in `Fetch` says them in its own SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.model.filter import CHANGES_SHOWN, QueueState
from perdure.model.queue import QueueChange, QueueRow, Usage, rate_bucket, revised

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.model.claim import Claimed
    from perdure.model.filter import QueueStats
    from perdure.model.write import SetQueue

Value = str | int | tuple[str, ...] | None
Fetch = Callable[..., "Sequence[tuple[Any, ...]]"]
"""(name of a statement, values) -> rows."""
Call = tuple[Any, ...]
"""A statement to be run: its name and its values. A backend that needs no such statement has none of its name."""


class Slots(NamedTuple):
    """Who has a place in a queue's limits."""

    usage: Usage
    holders: frozenset[str]
    returning: tuple[str, ...]
    """Holders that wait and are due."""
    ended: tuple[tuple[str, int], ...]
    """Runs and epochs whose slot does not count any more."""
    starts: tuple[tuple[int, int], ...]
    """(time, claims) in the window of the rate, oldest first."""


_NONE = Slots(Usage(), frozenset(), (), (), ())


def slots_of(fetch: Fetch, row: QueueRow | None, worker_id: str, now: int) -> Slots:
    """Return what a queue has in use. Costs what its limits allow, whatever waits in it."""
    if row is None or not (row.is_limited or row.rate_limit is not None):
        return _NONE
    held = fetch("slots", row.name, row.hold_while_waiting) if row.is_limited else []
    valid = [one for one in held if one[3] is not None]
    keys: dict[str, int] = {}
    for _, key, *_ in valid:
        if key is not None:
            keys[key] = keys.get(key, 0) + 1
    starts: tuple[tuple[int, int], ...] = ()
    if row.rate_limit is not None:
        starts = tuple((int(at), int(n)) for at, n in fetch("starts", row.name, now - (row.rate_us or 0)))
    mine = sum(one[2] == worker_id for one in valid)
    return Slots(
        Usage(len(valid), mine, keys, sum(n for _, n in starts)),
        frozenset(one[0] for one in valid),
        tuple(one[0] for one in valid if one[3] == "waiting" and one[4] is not None and one[4] <= now),
        tuple((one[0], one[5]) for one in held if one[3] is None),
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


def counted(rows: Mapping[str, QueueRow], claimed: Iterable[Claimed], now: int) -> list[Call]:
    """Return what takes a slot for each claimed run, and counts it where there is a rate."""
    calls: list[Call] = []
    starts: dict[str, int] = {}
    for one in claimed:
        row = rows.get(one.row.queue)
        if row is None or one.parked:
            continue
        if row.is_limited:
            calls.append(("put_slot", one.row.id, row.name, one.row.epoch + 1))
        if row.rate_limit is not None:
            starts[row.name] = starts.get(row.name, 0) + 1
    for name, n in starts.items():
        row = rows[name]
        calls.append(("count_start", name, rate_bucket(row, now), n))
        calls.append(("forget_starts", name, now - (row.rate_us or 0)))
    return calls


def settings_of(fetch: Fetch, name: str) -> QueueRow | None:
    """Return the settings of a queue."""
    found = fetch("get_queue", name)
    return QueueRow._make(found[0]) if found else None


def changed(fetch: Fetch, before: QueueRow | None, write: SetQueue) -> list[Call]:
    """Return what changes settings, records who did, and counts the runs that are owned.

    Args:
        fetch: to read by.
        before: the settings as they are; they stay so until the transaction ends.
        write: the change.
    """
    if fetch("change_by", write.queue, write.commit_id):
        return []
    if before is not None and not before.changes:
        before = None  # made only to be locked
    result = revised(before, write)
    if result is None:
        return []
    after, change = result
    calls: list[Call] = []
    if before is not None:
        calls.append(("drop_slots", before.name, before.hold_while_waiting))
    calls += [("put_queue", *after), ("insert_change", *change), ("bump_queues",)]
    calls.append(("drop_slots", after.name, after.hold_while_waiting))
    if after.is_limited:
        calls.append(("fill_slots", after.name))
    return calls


def states(fetch: Fetch, waiting: Iterable[QueueStats], now: int) -> tuple[QueueState, ...]:
    """Return every queue that has settings or open runs. Counts what stands in it."""
    rows = {row[0]: QueueRow._make(row) for row in fetch("queues")}
    standing, owned = ({name: int(n) for name, n in fetch(query)} for query in ("standing", "owned_of"))
    due: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for line in waiting:
        due[line.queue] = due.get(line.queue, 0) + line.due
        oldest[line.queue] = min(oldest.get(line.queue, line.oldest_wake_at), line.oldest_wake_at)
    found = []
    for name in sorted({*rows, *standing, *owned}):
        row, now_due = rows.get(name, QueueRow(name)), due.get(name, 0)
        usage = slots_of(fetch, row, "", now).usage
        changes = tuple(QueueChange._make(one) for one in fetch("changes", name, CHANGES_SHOWN))
        later = max(standing.get(name, 0) - now_due, 0)
        found.append(
            QueueState(row, now_due, later, owned.get(name, 0), usage.total, usage.starts, oldest.get(name), changes)
        )
    return tuple(found)
