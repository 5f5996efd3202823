"""Finding due runs and taking them, in a short transaction of its own.

A run that somebody else is just claiming is passed over, never waited for; so is a queue that counts its claims. The
cost of finding is that of the priority levels in use and the runs taken: what is not due, belongs to other queues or
needs other code is stepped over in the index, however much there is of it.
"""

from __future__ import annotations

import logging
import random
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.model.claim import TAIL_EVENTS, Claims
from perdure.model.event import Event
from perdure.model.queue import QueueRow
from perdure.model.run import RunRow
from perdure.store.line import Chosen, Line
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost
from perdure.store.slots import binding, counted
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.base import Decide
    from perdure.store.server.floors import Floors

logger: logging.Logger = logging.getLogger("perdure.store")
_LONGEST_MS = "2000"
"""How long a claim may be at rest between two statements before the server ends it."""
_SETTLING_US = 4_000_000
"""So long after a change of a queue's limits a claim may be under way that did not know of it."""
_SOON_US = (15_000, 60_000)
"""When to look again at a queue that somebody else is just claiming from: not all at once."""


class Outlook(NamedTuple):
    """What a look without a lock found."""

    due: bool
    """Whether there may be something to claim."""
    then: int
    """When there will be more, or it has to be looked at as a whole."""
    levels: Mapping[str, Sequence[tuple[Any, ...]]] = MappingProxyType({})
    """Queue to the priorities that runs wait with, and the first time of each."""


LATE = 2**63 - 1


def look(link: L, request: ClaimRequest, floors: Floors, now: int) -> Outlook:
    """Look for what is due, and for when there will be more. One round trip, and no lock."""
    if request.only is not None:
        return Outlook(due=True, then=now)
    queues = request.queues
    view = floors.note(queues, link.many(*floors.calls(queues, request.codes, now)), now)
    due, then = False, LATE if view.until is None else view.until
    for priority, _, _, head_at in chain.from_iterable(view.levels.values()):
        if priority is None:
            due |= request.take_over
        elif head_at <= now:
            due = True
        else:
            then = min(then, head_at)
    return Outlook(due, then, view.levels)


def claim(
    dialect: Dialect[L], link: L, request: ClaimRequest, outlook: Outlook, decide: Decide, damaged: set[str],
    settled: dict[str, int],
) -> Claims:  # fmt: skip
    """Claim up to ``request.limit`` runs, in the open transaction. A worker whose row is not live gets none.

    Args:
        dialect: how a batch is written.
        link: in a transaction.
        request: who claims, and what it can serve.
        outlook: what was just found to be due. It is not looked for again: what came since can wait for the next claim.
        decide: returns the append that claims a run.
        damaged: runs that turned out not to be claimable, here and earlier. They are passed over, so that they keep
            nobody else from being claimed.
        settled: queue to the number of the change of its settings after which all owned runs are known to have slots.
    """
    _, live, clock = link.many(("limit_claim", _LONGEST_MS), ("is_live", request.worker_id), ("clock",))
    if not live.rows:
        return Claims([])
    now = int(clock.rows[0][0])
    chosen, settings, waits = _choose(link, request, outlook, now, damaged, settled)
    claimed = _take(dialect, link, chosen.rows, decide, damaged)
    calls = [
        call
        for call in (
            *binding(claimed),
            *chosen.aftermath(),
            *counted(settings, claimed, max((one.append.events[0].at for one in claimed), default=now)),
        )
        if call[0] in dialect.sql
    ]
    if calls:
        link.many(*calls)
    answer = chosen.answer(claimed)
    if not waits:
        return answer
    soon = now + random.randint(*_SOON_US)
    return answer._replace(held=True, open_at=soon if answer.open_at is None else min(answer.open_at, soon))


def _choose(
    link: L, request: ClaimRequest, outlook: Outlook, now: int, damaged: Collection[str], settled: dict[str, int]
) -> tuple[Chosen, dict[str, QueueRow], bool]:
    """Lock and return the runs to take, the settings of the queues, and whether one is just being claimed from."""
    run = None
    queues = request.queues
    if request.only is not None:
        found = link.execute("only", request.only).rows
        run = RunRow._make(found[0][1:]) if found else None
        if run is None or run.id in damaged or not _may_claim(link, run, request):
            return Chosen([], []), {}, False
        queues = (run.queue,)
    locked, stored = link.many(("lock_queues", queues), ("queues_of", queues))
    settings = {row[0]: QueueRow._make(row) for row in stored.rows}
    mine = {row[0] for row in locked.rows}
    busy = {name for name, row in settings.items() if row.is_counted and name not in mine}
    for name in mine:
        # A claim that was under way as a limit was set took no slots: the first one after it sees to that.
        row = settings[name]
        if row.is_limited and settled.get(name) != row.changes:
            link.execute("fill_slots", name)
            if now - row.changed_at > _SETTLING_US:
                settled[name] = row.changes

    def fetch(name: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        if name == "levels":
            return outlook.levels[values[0]]
        return link.execute(name, *values).rows

    def line(name: str, expected: int) -> Line | None:
        if name in busy:
            return None
        row = settings.get(name)
        return Line(fetch, name, row, request, now, take_over=request.take_over, expected=expected, damaged=damaged)

    if run is None:
        return Chosen.of(request, line), settings, bool(busy)
    alone = line(run.queue, 1)
    return Chosen([], []) if alone is None else Chosen.of_one(run, alone), settings, bool(busy)


def _may_claim(link: L, row: RunRow, request: ClaimRequest) -> bool:
    if row.code not in request.codes:
        return False
    if row.owner is None:
        return True
    return request.take_over and bool(link.execute("is_gone", row.owner).rows)


def _take(dialect: Dialect[L], link: L, rows: Sequence[RunRow], decide: Decide, damaged: set[str]) -> list[Claimed]:
    """Append the claims of these runs and return them."""
    if not rows:
        return []
    recent, now = _ends(link, rows)
    claimed = []
    ends = Tails()
    for row in rows:
        if recent[row.id]:
            claimed.append(decide(row, tuple(recent[row.id]), now))
            ends[row.id] = recent[row.id][-1].seq
        else:
            _pass_over(row.id, damaged, "it has no log")
    if _record(dialect, link, claimed, ends):
        return claimed
    kept = []
    for one in claimed:
        if _record(dialect, link, [one], ends):
            kept.append(one)
        else:
            _pass_over(one.row.id, damaged, "its row and its log contradict each other")
    return kept


def _ends(link: L, rows: Sequence[RunRow]) -> tuple[dict[str, list[Event]], int]:
    """Return the ends of the logs, and what time it is: later than whatever freed a place in a limit."""
    ends: dict[str, list[Event]] = {row.id: [] for row in rows}
    events, clock = link.many(("load_tails", tuple(ends), TAIL_EVENTS), ("clock",))
    for row in events.rows:
        event = Event._make(row)
        ends[event.run_id].append(event)
    return ends, int(clock.rows[0][0])


def _record(dialect: Dialect[L], link: L, claimed: Sequence[Claimed], ends: Tails) -> bool:
    """Append the claims, all of them or none, and say whether they fitted."""
    try:
        dialect.attempt(link, [one.append for one in claimed], ends)
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
