"""Finding due runs and taking them, inside one write transaction.

The cost of finding is that of the priority levels in use and the runs taken: what is not due, belongs to other queues
or needs other code is stepped over in the index, however much there is of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.errors import StoreCorrupt
from perdure.model.claim import TAIL_EVENTS
from perdure.model.event import Event
from perdure.model.run import RunRow
from perdure.store.sqlite.batch import Doubt, Tails, fetch, plain, run_row

if TYPE_CHECKING:
    import apsw

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.base import Decide


def claim(connection: apsw.Connection, request: ClaimRequest, decide: Decide, now: int, tails: Tails) -> list[Claimed]:
    """Claim up to ``request.limit`` runs. A worker whose row is not live gets none.

    Raises:
        StoreCorrupt: a run that has no log, or a claim that does not fit the row it was made from.
    """
    if request.limit < 1 or not fetch(connection, "is_live", request.worker_id):
        return []
    rows = candidates(connection, request, now)
    recent: dict[str, list[Event]] = {row.id: [] for row in rows}
    # One statement for all: each gives the GIL up, and a busy event loop is slow to give it back.
    for event in fetch(connection, "load_tails", msgspec.json.encode(list(recent)).decode(), TAIL_EVENTS):
        recent[event[0]].append(Event._make(event))
    claimed = []
    for row in rows:
        if not recent[row.id]:
            message = "the run has no log"
            raise StoreCorrupt(message, run_id=row.id)
        claimed.append(decide(row, tuple(recent[row.id]), now))
    try:
        plain(connection, [one.append for one in claimed], now, tails)
    except Doubt:
        message = "a claim does not fit the run it was made for"
        raise StoreCorrupt(message) from None
    return claimed


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
