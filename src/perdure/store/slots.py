"""What a queue has in use, and what a claim leaves behind in the tables of queues.

For every backend: statements are named, and a backend that is not listed in `Fetch` says them in its own SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.model.filter import CHANGES_SHOWN, QueueState
from perdure.model.queue import QueueChange, QueueRow, Usage, rate_bucket, revised
from perdure.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.model.claim import Claimed
    from perdure.model.filter import QueueStats
    from perdure.model.run import RunRow
    from perdure.model.write import SetQueue

Value = str | int | tuple[str, ...] | None
Fetch = Callable[..., "Sequence[tuple[Any, ...]]"]
"""(name of a statement, values) -> rows."""
Call = tuple[Any, ...]
"""A statement to be run: its name and its values. A backend that needs no such statement has none of its name."""


STRANDED_US = 10_000_000
"""A run whose worker is gone for longer than this is not being taken over: nobody may have its code."""


class Slots(NamedTuple):
    """Who has a place in a queue's limits."""

    usage: Usage
    returning: tuple[str, ...]
    """Runs that have one, wait, and are due."""
    stale: bool
    """Whether there are some that do not count any more."""
    starts: tuple[tuple[int, int], ...]
    """(time, claims) in the window of the rate, oldest first."""


_NONE = Slots(Usage(), (), stale=False, starts=())


def slots_of(fetch: Fetch, row: QueueRow | None, worker_id: str, now: int) -> Slots:
    """Return what a queue has in use. Costs what its limits allow, whatever waits in it."""
    if row is None or not (row.is_limited or row.rate_limit is not None):
        return _NONE
    keys: dict[str, int] = {}
    total = mine = there = 0
    returning: tuple[str, ...] = ()
    if row.is_limited:
        by_key = int(row.concurrency_per_key is not None)
        for key, count, owned, all_of_it in fetch("slot_sums", row.name, row.hold_while_waiting, worker_id, by_key):
            total, mine, there = total + count, mine + owned, there + all_of_it
            if key is not None:
                keys[key] = count
        if row.hold_while_waiting:
            returning = tuple(run_id for (run_id,) in fetch("returning", row.name, now))
    starts: tuple[tuple[int, int], ...] = ()
    if row.rate_limit is not None:
        starts = tuple((int(at), int(n)) for at, n in fetch("starts", row.name, now - (row.rate_us or 0)))
    usage = Usage(total, mine, keys, sum(n for _, n in starts))
    return Slots(usage, returning, there > total, starts)


def has_slot(fetch: Fetch, row: QueueRow | None, run: RunRow) -> bool:
    """Whether a run has a slot that counts."""
    if row is None or not row.is_limited:
        return False
    counts = run.status == Status.RUNNING or (row.hold_while_waiting and run.status == Status.WAITING)
    return bool(counts and fetch("has_slot", run.id, run.epoch))


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
        if row is None or one.parked or one.returned:
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


def binding(claimed: Iterable[Claimed]) -> list[Call]:
    """Return what binds the runs that were bound to no version before they were claimed."""
    return [("bind_run", one.row.id, *one.bound) for one in claimed if one.bound is not None]


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
