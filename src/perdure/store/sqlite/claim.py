"""Finding due runs and taking them, inside one write transaction.

The cost of finding is that of the priority levels in use and the runs taken: what is not due, belongs to other queues
or needs other code is stepped over in the index, however much there is of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.model.claim import TAIL_EVENTS, Claims
from perdure.model.event import Event
from perdure.store.line import Chosen, Line
from perdure.store.settle import Doubt
from perdure.store.slots import binding, counted
from perdure.store.sqlite.batch import fetch, plain, run_row
from perdure.store.sqlite.fault import sound
from perdure.store.sqlite.queues import read_book, reading, run
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.model.run import RunRow
    from perdure.store.base import Decide
    from perdure.store.sqlite.queues import QueueBook

logger: logging.Logger = logging.getLogger("perdure.store")


def claim(
    connection: apsw.Connection, request: ClaimRequest, decide: Decide, now: int, tails: Tails, damaged: set[str],
    queues: QueueBook,
) -> Claims:  # fmt: skip
    """Claim up to ``request.limit`` runs. A worker whose row is not live gets none.

    Args:
        connection: in a write transaction.
        request: who claims, and what it can serve.
        decide: returns the append that claims a run.
        now: the common clock.
        tails: what is known to be in logs.
        damaged: runs that turned out not to be claimable, here and earlier. They are passed over, so that they keep
            nobody else from being claimed.
        queues: the settings of the queues.

    Raises:
        StoreCorrupt: what is due cannot be found out.
    """
    if request.limit < 1 or not fetch(connection, "is_live", request.worker_id):
        return Claims([])
    with sound():
        chosen = choose(connection, request, now, queues, damaged)
    recent = _ends(connection, chosen.rows, tails)
    claimed = []
    for row in chosen.rows:
        if recent.get(row.id):
            claimed.append(decide(row, tuple(recent[row.id]), now))
        else:
            _pass_over(row.id, damaged, "its log cannot be read")
    if not _record(connection, claimed, now, tails):
        claimed = _record_each(connection, claimed, now, tails, damaged)
    run(connection, [*binding(claimed), *chosen.aftermath(), *counted(queues.rows, claimed, now)])
    return chosen.answer(claimed)


def _record_each(
    connection: apsw.Connection, claimed: Sequence[Claimed], now: int, tails: Tails, damaged: set[str]
) -> list[Claimed]:
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


def without_writing(connection: apsw.Connection, request: ClaimRequest, now: int, known: QueueBook) -> Claims | None:
    """Return the answer to a claim that finds nothing to do; None if there is something to be written."""
    queues = read_book(connection, fetch(connection, "queue_version")[0][0], known)
    chosen = choose(connection, request._replace(limit=1, shares=()), now, queues)
    return chosen.answer([]) if chosen.is_idle else None


def choose(
    connection: apsw.Connection, request: ClaimRequest, now: int, queues: QueueBook, damaged: Collection[str] = ()
) -> Chosen:
    """Choose the runs to take. Reads only."""
    read = reading(connection)
    take_over = request.take_over and bool(fetch(connection, "gone"))

    def line(name: str, expected: int) -> Line:
        row = queues.rows.get(name)
        return Line(read, name, row, request, now, take_over=take_over, expected=expected, damaged=damaged)

    if request.only is not None:
        row = run_row(connection, request.only)
        if row is None or row.id in damaged or not _may_claim(connection, row, request, now):
            return Chosen([], [])
        return Chosen.of_one(row, line(row.queue, 1))
    return Chosen.of(request, line)


def _may_claim(connection: apsw.Connection, row: RunRow, request: ClaimRequest, now: int) -> bool:
    if row.code not in request.codes:
        return False
    if row.owner is None:
        return row.wake_at is not None and row.wake_at <= now
    return request.take_over and bool(fetch(connection, "is_gone", row.owner))
