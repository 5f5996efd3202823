"""Finding due runs and taking them, inside one write transaction.

The cost of finding is that of the priority levels in use and the runs taken: what is not due, belongs to other queues
or needs other code is stepped over in the index, however much there is of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.model.claim import TAIL_EVENTS
from perdure.model.event import Event
from perdure.model.run import RunRow
from perdure.store.settle import Doubt
from perdure.store.sqlite.batch import fetch, plain, run_row
from perdure.store.sqlite.fault import sound
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.base import Decide

logger: logging.Logger = logging.getLogger("perdure.store")


def claim(
    connection: apsw.Connection, request: ClaimRequest, decide: Decide, now: int, tails: Tails, damaged: set[str]
) -> list[Claimed]:
    """Claim up to ``request.limit`` runs. A worker whose row is not live gets none.

    Args:
        connection: in a write transaction.
        request: who claims, and what it can serve.
        decide: returns the append that claims a run.
        now: the common clock.
        tails: what is known to be in logs.
        damaged: runs that turned out not to be claimable, here and earlier. They are passed over, so that they keep
            nobody else from being claimed.

    Raises:
        StoreCorrupt: what is due cannot be found out.
    """
    if request.limit < 1 or not fetch(connection, "is_live", request.worker_id):
        return []
    with sound():
        rows = candidates(connection, request._replace(limit=request.limit + len(damaged)), now)
    rows = [row for row in rows if row.id not in damaged][: request.limit]
    recent = _ends(connection, rows, tails)
    claimed = []
    for row in rows:
        if recent.get(row.id):
            claimed.append(decide(row, tuple(recent[row.id]), now))
        else:
            _pass_over(row.id, damaged, "its log cannot be read")
    if _record(connection, claimed, now, tails):
        return claimed
    kept = []
    for one in claimed:
        if _record(connection, [one], now, tails):
            kept.append(one)
        else:
            _pass_over(one.row.id, damaged, "its row and its log contradict each other")
    return kept


def _ends(connection: apsw.Connection, rows: Sequence[RunRow], tails: Tails) -> dict[str, Sequence[Event]]:
    """Return the ends of the logs that can be read."""
    ends: dict[str, Sequence[Event]] = {}
    asked = []
    for row in rows:
        whole = tails.unclaimed.pop(row.id, None)
        if whole is None or row.epoch:
            asked.append(row.id)
        else:
            ends[row.id] = whole
    if asked:
        ends.update(_read_ends(connection, asked))
    return ends


def _read_ends(connection: apsw.Connection, run_ids: list[str]) -> dict[str, list[Event]]:
    ends: dict[str, list[Event]] = {run_id: [] for run_id in run_ids}
    try:
        # One statement for all: each gives the GIL up, and a busy event loop is slow to give it back.
        found = fetch(connection, "load_tails", msgspec.json.encode(run_ids).decode(), TAIL_EVENTS)
    except (apsw.CorruptError, UnicodeDecodeError):
        if len(run_ids) < 2:
            return {}
        return {run_id: end for one in run_ids for run_id, end in _read_ends(connection, [one]).items()}
    for event in found:
        ends[event[0]].append(Event._make(event))
    return ends


def _record(connection: apsw.Connection, claimed: Sequence[Claimed], now: int, tails: Tails) -> bool:
    """Append the claims, all of them or none, and say whether they fitted."""
    connection.execute("savepoint claim")
    try:
        plain(connection, [one.append for one in claimed], now, tails)
    except (Doubt, apsw.ConstraintError):
        tails.clear()
        connection.execute("rollback to claim; release claim")
        return False
    connection.execute("release claim")
    return True


def _pass_over(run_id: str, damaged: set[str], why: str) -> None:
    damaged.add(run_id)
    logger.error("run %r is due and cannot be claimed: %s; run `perdure verify`", run_id, why)


def candidates(connection: apsw.Connection, request: ClaimRequest, now: int) -> list[RunRow]:
    """Return the runs to take: highest priority first, of one priority those of dead workers, then longest due."""
    if request.only is not None:
        row = run_row(connection, request.only)
        return [row] if row is not None and _may_claim(connection, row, request, now) else []
    queues, workflows = (msgspec.json.encode(names).decode() for names in (request.queues, request.workflows))
    found: list[tuple[int, RunRow]] = []
    if request.take_over and fetch(connection, "gone"):
        rows = fetch(connection, "bereft", queues, workflows, request.limit)
        found = [(row[0], RunRow._make(row[1:])) for row in rows]
    level: int | None = None
    due = 0
    for priority, queue, workflow in fetch(connection, "slots", queues, workflows, now):
        if due >= request.limit and priority != level:
            break
        level = priority
        rows = fetch(connection, "due", queue, workflow, priority, now, request.limit)
        due += len(rows)
        found.extend((row[0], RunRow._make(row[1:])) for row in rows)
    found.sort(key=_turn)
    return [row for _, row in found[: request.limit]]


def _turn(candidate: tuple[int, RunRow]) -> tuple[int, int, int]:
    number, row = candidate
    return -row.priority, -1 if row.wake_at is None else row.wake_at, number


def _may_claim(connection: apsw.Connection, row: RunRow, request: ClaimRequest, now: int) -> bool:
    if row.workflow not in request.workflows:
        return False
    if row.owner is None:
        return row.wake_at is not None and row.wake_at <= now
    return request.take_over and bool(fetch(connection, "is_gone", row.owner))
