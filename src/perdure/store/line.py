"""Which run of a queue is next, as one claim draws runs from it. Reads only.

The cost is that of the priorities in use, the runs taken, and the keys that are passed over because they have all that
their limit allows: never more of those than the queue has slots taken.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from perdure.model.claim import Claims
from perdure.model.queue import Allowance, QueueRow, place_of, rate_bucket
from perdure.model.run import RunRow
from perdure.store.slots import STRANDED_US, has_slot, opens_at, slots_of
from perdure.store.source import MOST_STALE, Candidate, Keys, Lane, Listed, Plain, Source, candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.store.slots import Call, Fetch

_UNSEEN = -1


class Line:
    """One queue in one claim.

    Args:
        fetch: to read by.
        name: name of the queue.
        row: its settings, if it has any.
        request: who claims, and what it can serve.
        now: the common clock.
        take_over: whether there are workers whose runs are to be taken over.
        expected: how many runs it may be asked for, as far as is known.
        damaged: runs that cannot be claimed.

    Attributes:
        held: whether runs may have been left because of a limit.
        open_at: when a rate that is used up lets the next run be claimed.
        turns: lanes that were drawn from, or found empty, to the time of their key's last turn.
        looked: how many lanes were found empty.
    """

    def __init__(
        self, fetch: Fetch, name: str, row: QueueRow | None, request: ClaimRequest, now: int, *,
        take_over: bool, expected: int, damaged: Collection[str],
    ) -> None:  # fmt: skip
        self.fetch: Fetch = fetch
        self.name = name
        self.now = now
        self.expected = expected
        self._row = row
        self._request = request
        self._take_over = take_over
        slots = slots_of(fetch, row, request.worker_id, now)
        self._slots = slots
        self._damaged = damaged
        self.excluded: Collection[str] = {*damaged, *slots.returning}
        self.allowance: Allowance = Allowance(row, slots.usage)
        self._was_full = self.allowance.full and not self.allowance.paused
        self.held: bool = False
        self.open_at: int | None = None
        self.turns: dict[Lane, int] = {}
        self.looked: int = 0
        self._drawn = 0

    def admits(self, run: RunRow) -> bool:
        """Whether one run may be taken by itself."""
        if self.allowance.admits(run.partition_key, holds=has_slot(self.fetch, self._row, run)):
            return True
        self._hold()
        return False

    def draw(self) -> Iterator[RunRow]:
        """Yield the runs to take, best first."""
        allowance = self.allowance
        if allowance.paused:
            self.held = True
            return
        heap: list[tuple[tuple[int, int], int, str, int, int]] = []
        sources: list[Source] = []
        for source, head in self._sources():
            heappush(heap, (*head, len(sources)))
            sources.append(source)
        while heap and not allowance.closed:
            *_, number, n = heappop(heap)
            source = sources[n]
            best = source.peek()
            if best is not None and number != _UNSEEN and best.number == number:
                key = best.row.partition_key
                if allowance.admits(key, holds=best.holds):
                    self._drawn += 1
                    allowance.take(key, holds=best.holds)
                    source.pop(self.now - self._request.limit + self._drawn)
                    yield best.row
                else:
                    self.held = True
                    source.pop(None)
                best = source.peek()
            if best is not None:
                heappush(heap, (*self._place(best), n))
        if heap or self.held:
            self._hold()
        if self.looked >= MOST_STALE:
            self.open_at = self.now

    def stranded(self) -> list[RunRow]:
        """Return the runs that keep a slot of a full queue, and that nobody takes over."""
        if not (self._take_over and self._was_full and self._slots.usage.total):
            return []
        rows = self.fetch("stranded", self.name, self.now - STRANDED_US)
        found = [candidate(row).row for row in rows]
        served = self._request.codes
        return [run for run in found if run.code not in served and run.id not in self._damaged]

    def aftermath(self) -> list[Call]:
        """Return what notes whose turn it was, and forgets slots that do not count any more; for after the claim."""
        calls: list[Call] = []
        if self._slots.stale and self._row is not None:
            calls.append(("drop_slots", self.name, self._row.hold_while_waiting))
        for lane, turn in sorted(self.turns.items()):
            calls += [("hold_lane", *lane), ("turn_lane", *lane, turn), ("drop_lane", *lane)]
        return calls

    def _place(self, one: Candidate) -> tuple[tuple[int, int], int, str, int]:
        return place_of(self._row, one.row.priority, one.rank), one.rank, one.key, one.number

    def _hold(self) -> None:
        self.held = True
        if self.allowance.late and self._row is not None:
            starts = (*self._slots.starts, (rate_bucket(self._row, self.now), self._drawn))
            self.open_at = opens_at(self._row, starts)

    def _sources(self) -> Iterator[tuple[Source, tuple[tuple[int, int], int, str, int]]]:
        """Yield the sources with the place of their first run, or a place that is not behind it."""
        own = Listed(self._own())
        if (first := own.peek()) is not None:
            yield own, self._place(first)
        if self.allowance.full:
            self._hold()
            return
        fair = self._row is not None and bool(self._row.fair)
        for priority, code, keyed, head_at in self.fetch("levels", self.name, self._request.codes):
            if head_at is None or head_at > self.now:
                continue
            make: Callable[..., Source] = partial(Keys, fair=fair) if keyed else Plain
            source = make(self, code, priority, head_at)
            yield source, (place_of(self._row, priority, head_at), head_at, "", _UNSEEN)

    def _own(self) -> list[Candidate]:
        """Return the runs that stand in no line, in order."""
        found: list[Candidate] = []
        ageing = None if self._row is None else self._row.ageing_us
        if self._take_over:
            for row in self.fetch("bereft", self.name, self._request.codes, ageing):
                one = candidate(row)
                rank = -1 if ageing is None else one.row.updated_at
                found.append(one._replace(rank=rank, holds=has_slot(self.fetch, self._row, one.row)))
        for run_id in self._slots.returning:
            found += [candidate(row)._replace(holds=True) for row in self.fetch("numbered", run_id)]
        served = self._request.codes
        found = [one for one in found if one.row.code in served and one.row.id not in self._damaged]
        return sorted(found, key=self._place)


class Chosen(NamedTuple):
    """The runs to claim, and the queues as they were drawn from."""

    rows: list[RunRow]
    lines: list[Line]

    @classmethod
    def of(cls, request: ClaimRequest, line: Callable[[str, int], Line | None]) -> Chosen:
        """Draw of each queue its share first, then whatever there is, in the order of the queues.

        Args:
            request: who claims, and what it can serve.
            line: makes a queue's line of its name and how much is expected of it; None: not now.
        """
        shares = request.shares or (request.limit,) * len(request.queues)
        drawn: list[tuple[int, Iterator[RunRow]]] = []
        lines: list[Line] = []
        for name, share in zip(request.queues, shares, strict=True):
            made = line(name, max(share, 1))
            if made is not None:
                lines.append(made)
                drawn.append((share, made.draw()))
        rows: list[RunRow] = []
        for share, draw in [*(drawn if request.shares else ()), *((request.limit, draw) for _, draw in drawn)]:
            rows += islice(draw, max(min(share, request.limit - len(rows)), 0))
        return cls([*rows, *(run for one in lines for run in one.stranded())], lines)

    @classmethod
    def of_one(cls, row: RunRow, line: Line) -> Chosen:
        """Choose one run, if its queue admits it."""
        return cls([row] if line.admits(row) else [], [line])

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to be written."""
        return not self.rows and not any(line.turns for line in self.lines)

    def aftermath(self) -> list[Call]:
        """Return what is to be run after the claim, in its transaction."""
        return [call for line in self.lines for call in line.aftermath()]

    def answer(self, claimed: list[Claimed]) -> Claims:
        """Return the answer to the claim."""
        times = [line.open_at for line in self.lines if line.open_at is not None]
        return Claims(claimed, any(line.held for line in self.lines), min(times, default=None))
