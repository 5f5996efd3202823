"""Finding due runs and taking them, in a short transaction of its own.

A run that somebody else is just claiming is passed over, never waited for. The cost of finding is that of the priority
levels in use and the runs taken: what is not due, belongs to other queues or needs other code is stepped over in the
index, however much there is of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from perdure.model.claim import TAIL_EVENTS
from perdure.model.event import Event
from perdure.model.run import RunRow
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.base import Decide

logger: logging.Logger = logging.getLogger("perdure.store")
_LONGEST_MS = "2000"
"""How long a claim may be at rest between two statements before the server ends it."""


NOW = 0
LATE = 2**63 - 1


def next_due(link: L, request: ClaimRequest) -> int:
    """Return when there will be something to claim; `NOW` if there may be already. One statement, and no lock."""
    if request.only is not None:
        return NOW
    first = LATE
    for priority, _, _, wake_at, due in link.execute("slots", *_names(request)).rows:
        if due and (request.take_over or priority is not None):
            return NOW
        first = min(first, wake_at or LATE)
    return first


def claim(
    dialect: Dialect[L], link: L, request: ClaimRequest, decide: Decide, now: int, damaged: set[str]
) -> list[Claimed]:
    """Claim up to ``request.limit`` runs, in the open transaction. A worker whose row is not live gets none.

    Args:
        dialect: how a batch is written.
        link: in a transaction.
        request: who claims, and what it can serve.
        decide: returns the append that claims a run.
        now: the server's clock.
        damaged: runs that turned out not to be claimable, here and earlier. They are passed over, so that they keep
            nobody else from being claimed.
    """
    _, live = link.many(("limit_claim", _LONGEST_MS), ("is_live", request.worker_id))
    if not live.rows:
        return []
    rows = _candidates(link, request._replace(limit=request.limit + len(damaged)))
    rows = [row for row in rows if row.id not in damaged][: request.limit]
    if not rows:
        return []
    recent = _ends(link, rows)
    claimed = []
    for row in rows:
        if recent[row.id]:
            claimed.append(decide(row, tuple(recent[row.id]), now))
        else:
            _pass_over(row.id, damaged, "it has no log")
    if _record(dialect, link, claimed):
        return claimed
    kept = []
    for one in claimed:
        if _record(dialect, link, [one]):
            kept.append(one)
        else:
            _pass_over(one.row.id, damaged, "its row and its log contradict each other")
    return kept


def _candidates(link: L, request: ClaimRequest) -> list[RunRow]:
    """Lock and return the runs to take: highest priority first, of one those of dead workers, then longest due."""
    if request.only is not None:
        rows = [RunRow._make(row[1:]) for row in link.execute("only", request.only).rows]
        return [row for row in rows if _may_claim(link, row, request)]
    names = _names(request)
    found: list[tuple[int, RunRow]] = []
    calls: list[tuple[Any, ...]] = [("slots", *names)]
    if request.take_over:
        calls.append(("bereft", *names, request.limit))
    slots, *bereft = link.many(*calls)
    for result in bereft:
        found += [(row[0], RunRow._make(row[1:])) for row in result.rows]
    level: object = None
    due = 0
    for priority, queue, workflow, _, is_due in slots.rows:
        if priority is None or not is_due:
            continue
        if due >= request.limit and priority != level:
            break
        level = priority
        rows_due = link.execute("due", queue, workflow, priority, request.limit).rows
        due += len(rows_due)
        found += [(row[0], RunRow._make(row[1:])) for row in rows_due]
    found.sort(key=_turn)
    return [row for _, row in found[: request.limit]]


def _names(request: ClaimRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return request.queues, request.workflows


def _turn(candidate: tuple[int, RunRow]) -> tuple[int, int, int]:
    number, row = candidate
    return -row.priority, -1 if row.wake_at is None else row.wake_at, number


def _may_claim(link: L, row: RunRow, request: ClaimRequest) -> bool:
    if row.workflow not in request.workflows:
        return False
    if row.owner is None:
        return True
    return request.take_over and bool(link.execute("is_gone", row.owner).rows)


def _ends(link: L, rows: Sequence[RunRow]) -> dict[str, list[Event]]:
    ends: dict[str, list[Event]] = {row.id: [] for row in rows}
    for row in link.execute("load_tails", tuple(ends), TAIL_EVENTS).rows:
        event = Event._make(row)
        ends[event.run_id].append(event)
    return ends


def _record(dialect: Dialect[L], link: L, claimed: Sequence[Claimed]) -> bool:
    """Append the claims, all of them or none, and say whether they fitted."""
    try:
        dialect.attempt(link, [one.append for one in claimed])
    except LinkLost:
        raise
    except Exception as error:
        if dialect.fault(error) is not Fault.WRITE:
            raise
        return False
    return True


def _pass_over(run_id: str, damaged: set[str], why: str) -> None:
    damaged.add(run_id)
    logger.error("run %r is due and cannot be claimed: %s; run `perdure verify`", run_id, why)
