"""Finding due runs and taking them, in a short transaction of its own.

A run that somebody else is just claiming is passed over, never waited for; so is a queue that counts its claims. The
cost of finding is that of the priority levels in use and the runs taken: what is not due, belongs to other queues or
needs other code is stepped over in the index, however much there is of it.

A claim is made on a thread, which gives the GIL up with every round trip and may wait 5 ms for it from a busy event
loop. So there are as few as can be: one looks, one enters, one chooses, one ends. Only what was not recorded here
has its log read in between; and only if something does not fit, a claim is made again, one run after the other.
"""

from __future__ import annotations

import logging
import random
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from perdure.model.claim import TAIL_EVENTS, Claims
from perdure.model.event import Event
from perdure.model.queue import QueueRow
from perdure.model.run import RunRow
from perdure.store.line import Chosen, Line
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost
from perdure.store.server.floors import Floors
from perdure.store.slots import binding, counted
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.base import Decide
    from perdure.store.server.clock import ServerClock
    from perdure.store.server.commit import Promise
    from perdure.store.server.dialect import Result

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
    gone: bool = False
    """Whether there are workers to take over from."""


LATE = 2**63 - 1


class Known:
    """What a process knows from its earlier claims. Used by one thread at a time, but for ``tails``.

    Args:
        tails: what is known of logs.

    Attributes:
        damaged: due runs that cannot be claimed. They are passed over, so that they keep nobody else from a claim.
        settled: queue to the number of the change of its limits that all who claim know of.
        floors: from where on to look.
    """

    def __init__(self, tails: Tails) -> None:
        self.tails = tails
        self.damaged: set[str] = set()
        self.settled: dict[str, int] = {}
        self.floors: Floors = Floors()


class _Entered(NamedTuple):
    """What holds for a claim once its transaction has begun."""

    now: int
    run: RunRow | None
    """The only one that is wanted; None if any will do."""
    settings: dict[str, QueueRow]
    mine: frozenset[str]
    """Queues that count their claims and are locked."""

    @property
    def busy(self) -> set[str]:
        """Queues that somebody else is just claiming from."""
        return {name for name, row in self.settings.items() if row.is_counted and name not in self.mine}


class Claiming(Generic[L]):
    """One claim of up to ``request.limit`` runs, tried until it is known what becomes of it.

    Args:
        dialect: of the server.
        clock: of the server, too. It is told what time a claim is made at, so that the claim lies in its past.
        request: who claims, and what it can serve. A worker whose row is not live gets nothing.
        decide: returns the append that claims a run.
        known: from earlier claims.

    Attributes:
        outlook: what was found to be due. It is not looked for again: what came since can wait for the next claim.
        answer: what was taken by the last try.
    """

    def __init__(
        self, dialect: Dialect[L], clock: ServerClock, request: ClaimRequest, decide: Decide, known: Known
    ) -> None:
        self._dialect = dialect
        self._clock = clock
        self._request = request
        self._decide = decide
        self._known = known
        self.outlook: Outlook = Outlook(due=False, then=0)
        self.answer: Claims = Claims([])
        self._settling: dict[str, int] = {}

    def __call__(self, link: L, promise: Promise) -> Claims:
        """Look, claim and commit.

        Raises:
            LinkLost: what became of the commit is not known; ``promise`` says what to look for.
            Exception: an error of the driver; nothing is claimed.
        """
        self.answer = Claims([])  # a try before this one may have been undone
        if self._request.limit < 1:
            return self.answer
        self.outlook = self._look(link, self._clock.now())
        if self.outlook.due:
            link.begin()
            if not self._claim(link, promise, careful=False):
                link.rollback()
                link.begin()
                self._claim(link, promise, careful=True)
        return self.answer

    def _look(self, link: L, now: int) -> Outlook:
        """Look for what is due, and for when there will be more. One round trip, and no lock."""
        request, floors = self._request, self._known.floors
        if request.only is not None:
            return Outlook(due=True, then=now)
        queues = request.queues
        view = floors.note(queues, link.many(*floors.calls(queues, request.codes, now)), now)
        due = gone = False
        then = LATE if view.until is None else view.until
        for priority, _, _, head_at in chain.from_iterable(view.levels.values()):
            if priority is None:
                gone = request.take_over
            elif head_at <= now:
                due = True
            else:
                then = min(then, head_at)
        return Outlook(due or gone, then, view.levels, gone)

    def _claim(self, link: L, promise: Promise, *, careful: bool) -> bool:
        """Claim in the open transaction, and end it; False if something did not fit and it has to be undone."""
        self.answer = Claims([])
        self._settling = {}
        entered = self._enter(link)
        if entered is None:
            link.commit()
            return True
        chosen = self._choose(link, entered)
        claimed, ends = self._decided(link, chosen, entered)
        if careful:
            claimed = [one for one in claimed if self._fits(link, one, ends)]
        appends = [one.append for one in claimed]
        promise.writes = appends
        at = max((append.events[0].at for append in appends), default=entered.now)
        calls = [*binding(claimed), *chosen.aftermath(), *counted(entered.settings, claimed, at)]
        calls = [call for call in calls if call[0] in self._dialect.sql]
        self.answer = _answer(chosen.answer(claimed), entered)
        try:
            self._dialect.conclude(link, [] if careful else appends, ends, calls)
        except Exception as error:
            if careful or not self._is_misfit(error):
                raise
            return False
        self._known.settled.update(self._settling)
        return True

    def _enter(self, link: L) -> _Entered | None:
        """Lock the queues that count their claims and are free; None if this worker may not claim."""
        request = self._request
        opening = [("limit_claim", _LONGEST_MS), ("is_live", request.worker_id)]
        queues, run = request.queues, None
        if request.only is not None:
            _, live, found = link.many(*opening, ("only", request.only))
            run = RunRow._make(found.rows[0][1:]) if found.rows else None
            if not live.rows or run is None or not self._may_claim(link, run):
                return None
            queues, opening = (run.queue,), []
        # What time it is comes last: whatever freed a place in a limit that is seen from here on was earlier.
        *entry, locked, stored, clock = link.many(*opening, ("lock_queues", queues), ("queues_of", queues), ("clock",))
        if entry and not entry[-1].rows:
            return None
        settings = {row[0]: QueueRow._make(row) for row in stored.rows}
        return _Entered(self._told(clock), run, settings, frozenset(row[0] for row in locked.rows))

    def _choose(self, link: L, entered: _Entered) -> Chosen:
        """Lock and return the runs to take."""
        request, known, outlook = self._request, self._known, self.outlook
        now, settings, busy = entered.now, entered.settings, entered.busy
        for name in entered.mine:
            # A claim that was under way as a limit was set took no slots: the first one after it sees to that.
            row = settings[name]
            if row.is_limited and known.settled.get(name) != row.changes:
                link.execute("fill_slots", name)
                if now - row.changed_at > _SETTLING_US:
                    self._settling[name] = row.changes

        def fetch(name: str, *values: Any) -> Sequence[tuple[Any, ...]]:
            if name == "levels":
                return outlook.levels[values[0]]
            return link.execute(name, *values).rows

        def line(name: str, expected: int) -> Line | None:
            if name in busy:
                return None
            row, gone = settings.get(name), outlook.gone
            return Line(fetch, name, row, request, now, take_over=gone, expected=expected, damaged=known.damaged)

        if entered.run is None:
            return Chosen.of(request, line)
        alone = line(entered.run.queue, 1)
        return Chosen([], []) if alone is None else Chosen.of_one(entered.run, alone)

    def _may_claim(self, link: L, row: RunRow) -> bool:
        request = self._request
        if row.id in self._known.damaged or row.code not in request.codes:
            return False
        if row.owner is None:
            return True
        return request.take_over and bool(link.execute("is_gone", row.owner).rows)

    def _decided(self, link: L, chosen: Chosen, entered: _Entered) -> tuple[list[Claimed], Tails]:
        """Return the claims of the chosen runs, and the ends of their logs."""
        counts = any(row.is_counted for row in entered.settings.values())
        recent, now = self._recent(link, chosen.rows, None if counts else entered.now)
        claimed = []
        ends = Tails()
        for row in chosen.rows:
            if recent.get(row.id):
                claimed.append(self._decide(row, tuple(recent[row.id]), now))
                ends[row.id] = recent[row.id][-1].seq
            else:
                self._pass_over(row.id, "it has no log")
        return claimed, ends

    def _recent(self, link: L, rows: Sequence[RunRow], now: int | None) -> tuple[dict[str, Sequence[Event]], int]:
        """Return the ends of the logs, and what time it is.

        Args:
            link: in the transaction that has locked the runs.
            rows: the runs.
            now: what time it was, if that will do: not where it has to be later than whatever freed a place in a limit.
        """
        ends: dict[str, Sequence[Event]] = {}
        unclaimed = self._known.tails.unclaimed
        for row in rows:
            whole = unclaimed.pop(row.id, None)
            if whole is not None and not row.epoch:
                ends[row.id] = whole
        asked = tuple(row.id for row in rows if row.id not in ends)
        if now is not None and not asked:
            return ends, now
        events, clock = link.many(("load_tails", asked, TAIL_EVENTS), ("clock",))
        read: dict[str, list[Event]] = {run_id: [] for run_id in asked}
        for values in events.rows:
            event = Event._make(values)
            read[event.run_id].append(event)
        return {**ends, **read}, self._told(clock)

    def _told(self, clock: Result) -> int:
        now = int(clock.rows[0][0])
        self._clock.hear(now)
        return now

    def _fits(self, link: L, one: Claimed, ends: Tails) -> bool:
        """Append a claim, and say whether that was possible."""
        try:
            self._dialect.attempt(link, [one.append], ends)
        except Exception as error:
            if not self._is_misfit(error):
                raise
            self._pass_over(one.row.id, "its row and its log contradict each other")
            return False
        return True

    def _is_misfit(self, error: Exception) -> bool:
        return not isinstance(error, LinkLost) and self._dialect.fault(error) is Fault.WRITE

    def _pass_over(self, run_id: str, why: str) -> None:
        self._known.damaged.add(run_id)
        logger.error("run %r is due and cannot be claimed: %s; run `perdure verify`", run_id, why)


def _answer(answer: Claims, entered: _Entered) -> Claims:
    """Return the answer, with when to look again if somebody else is just claiming."""
    if not entered.busy:
        return answer
    soon = entered.now + random.randint(*_SOON_US)
    return answer._replace(held=True, open_at=soon if answer.open_at is None else min(answer.open_at, soon))
