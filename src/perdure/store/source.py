"""Where the runs of a queue stand: those without a key, those with one, and those that have no place in a line.

A source gives its runs in order, one ahead of what is taken. It reads only what it is asked for.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from perdure.model.run import RunRow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from perdure.model.queue import Allowance
    from perdure.store.slots import Fetch

_MOST_KEYS_AT_ONCE = 32
_RUNS_AT_ONCE = 8
_FIRST = -(2**63)
MOST_STALE = 1000
"""Lines found empty in one claim; the next one goes on."""


class Candidate(NamedTuple):
    """A run that may be next in its queue."""

    rank: int
    """Since when it is due, or since when it is its key's turn."""
    key: str
    number: int
    row: RunRow
    holds: bool = False
    """It has a slot."""


class Lane(NamedTuple):
    """A line of runs with one partition key. The field order is that of the statements."""

    queue: str
    partition_key: str
    code: str
    priority: int


class Desk(Protocol):
    """The claim that the sources serve."""

    fetch: Fetch
    name: str
    now: int
    expected: int
    excluded: Collection[str]
    allowance: Allowance
    held: bool
    turns: dict[Lane, int]
    looked: int


class Source(Protocol):
    """Runs in order."""

    def peek(self) -> Candidate | None:
        """Return the first that is not taken; None at the end."""
        ...

    def pop(self, turn: int | None) -> None:
        """Take the first, as the turn of its key at ``turn``; None: it was refused for a limit."""
        ...


class Listed:
    """Runs that stand in no line: their worker is gone, or they come back to the slot they kept."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._left = list(reversed(candidates))

    def peek(self) -> Candidate | None:
        """Return the first."""
        return self._left[-1] if self._left else None

    def pop(self, turn: int | None) -> None:  # noqa: ARG002 - they have no turns
        """Take the first."""
        self._left.pop()


class Plain:
    """Runs of one code and priority that have no key, none of them due before ``head_at``."""

    def __init__(self, desk: Desk, code: str, priority: int, head_at: int) -> None:
        self._desk = desk
        self._where = (desk.name, code, priority, desk.now)
        self._rows: list[Candidate] = []
        self._after = (head_at, _FIRST)
        self._ended = False

    def peek(self) -> Candidate | None:
        """Return the first."""
        desk = self._desk
        if desk.allowance.full:
            desk.held = True
            return None
        while not self._rows and not self._ended:
            count = desk.expected + len(desk.excluded)
            found = [candidate(row) for row in desk.fetch("due_plain", *self._where, *self._after, count)]
            self._ended = len(found) < count
            if found:
                self._after = (found[-1].rank, found[-1].number)
            self._rows = [one for one in reversed(found) if one.row.id not in desk.excluded]
        return self._rows[-1] if self._rows else None

    def pop(self, turn: int | None) -> None:  # noqa: ARG002 - they have no turns
        """Take the first."""
        self._rows.pop()


class _Lane:
    """The runs of one key, code and priority.

    Args:
        desk: the claim.
        lane: which.
        turn: when its key had its turn, or not later than its first run is due.
        head: its first run if that was read with it and is due: none or one; None if it was not read.
    """

    def __init__(self, desk: Desk, lane: Lane, turn: int, head: Sequence[Candidate] | None) -> None:
        self._desk = desk
        self.lane = lane
        self.turn = turn
        self._rows: list[Candidate] = []
        self._ended = head is not None and not head
        self._after = (_FIRST, _FIRST)
        self.shadowed = False
        """Whether it has runs that are due and are not claimed from here."""
        if head:
            self._note(head)

    def head(self) -> Candidate | None:
        """Return the first run that is not taken."""
        desk = self._desk
        while not self._rows and not self._ended:
            rows = desk.fetch("due_keyed", *self.lane, desk.now, *self._after, _RUNS_AT_ONCE)
            found = [candidate(row) for row in rows]
            self._ended = len(found) < _RUNS_AT_ONCE
            self._note(found)
        if not self._rows:
            return None
        head = self._rows[-1]
        return head._replace(rank=max(head.rank, self.turn), key=self.lane.partition_key)

    def _note(self, found: Sequence[Candidate]) -> None:
        if found:
            self._after = (found[-1].rank, found[-1].number)
        self._rows = [one for one in reversed(found) if one.row.id not in self._desk.excluded]
        self.shadowed |= len(self._rows) < len(found)

    def pop(self) -> None:
        """Take the first run."""
        self._rows.pop()


class Keys:
    """Runs of one code and priority that have a key; the keys in the order of their turns, none before ``head_at``."""

    def __init__(self, desk: Desk, code: str, priority: int, head_at: int, *, fair: bool) -> None:
        self._desk = desk
        self._code = code
        self._priority = priority
        self._fair = fair
        self._heap: list[tuple[int, str, int, _Lane]] = []
        """(rank, key, number of the run or -1 while it has not been looked at, line)."""
        self._last = (max(head_at - 1, _FIRST), "")
        """Up to which turn the lines are in the heap."""
        self._ended = False

    def peek(self) -> Candidate | None:
        """Return the first run of the key whose turn it is."""
        desk, heap = self._desk, self._heap
        while True:
            if desk.allowance.full:
                desk.held = True
                return None
            while not self._ended and (not heap or heap[0][:2] > self._last):
                self._load()
            if not heap or desk.looked >= MOST_STALE:
                return None
            _, key, number, lane = heap[0]
            if not desk.allowance.admits(key):
                desk.held = True
                heappop(heap)
                continue
            head = lane.head()
            if number >= 0:
                return head
            heappop(heap)
            if head is not None:
                heappush(heap, (head.rank, key, head.number, lane))
            elif not lane.shadowed:
                desk.turns[lane.lane] = lane.turn
                desk.looked += 1

    def pop(self, turn: int | None) -> None:
        """Take the first run; its key's next turn comes after those of the others."""
        *_, lane = heappop(self._heap)
        if turn is None:
            return
        lane.pop()
        lane.turn = self._desk.turns[lane.lane] = turn if self._fair else 0
        head = lane.head()
        if head is not None:
            heappush(self._heap, (head.rank, head.key, head.number, lane))

    def _load(self) -> None:
        desk = self._desk
        where = (desk.name, self._code, self._priority)
        count = min(desk.expected + 1, _MOST_KEYS_AT_ONCE)
        found = desk.fetch("lanes", *where, desk.now, *self._last, count)
        self._ended = len(found) < count
        for turn, key, *head in found:
            self._last = (turn, key)
            if desk.allowance.admits(key):
                lane = Lane(desk.name, key, self._code, self._priority)
                known = None if not head else [] if head[0] is None else [candidate(head)]
                heappush(self._heap, (turn, key, -1, _Lane(desk, lane, turn, known)))
            else:
                desk.held = True


def candidate(row: Sequence[Any]) -> Candidate:
    """Return the run of a row that begins with its number."""
    run = RunRow._make(row[1:])
    return Candidate(-1 if run.wake_at is None else run.wake_at, "", row[0], run)
