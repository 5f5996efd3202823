"""From where on a look at what is due reads an index.

Somebody's old snapshot keeps the index entries of the runs that were claimed, and the longest due come first: each look
from the beginning wades through all of them. While that is found to be costly, a look begins at the floor of each
priority, which is where the last one found its first run. Only a run that is recorded late, with a time before the
floor, is not seen there; so a whole look is made again and again.

INV-1  No run that is due is passed over for longer than `_BLIND_US`, or ten times what a whole look costs.
INV-2  Where whole looks are cheap, or others cost as much, every look is whole.
INV-3  A priority that is not known is looked for in every look.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.store.server.dialect import Result, Value

COSTLY_US = 3_000
"""Of the server's time. A look takes a tenth of that where no dead entries are in the way."""
IN_A_ROW = 8
"""Costly looks before floors are used: what waits for the disk, or for a processor, seldom does so every time."""
_USE = 2
"""A whole look costs more than so many others, or floors are of no use."""
_BLIND_US = 1_000_000
_SHARE = 10
"""Whole looks take at most one part in so many of the time."""
_LATE_US = 1_000_000
"""A commit that takes this long is not late yet."""
_MOST_EMPTY = 100
"""Priorities in which nothing waits that are remembered, because their dead entries may still be there."""
_HIGHEST, _LOWEST = 2**63 - 1, -(2**63)
SPENT = 2
"""Where others say whether it is keyed, a row that says what the look cost says this."""


class Gap(NamedTuple):
    """Priorities of a code among which any may be in use."""

    code: str
    keyed: int
    highest: int
    lowest: int


class Level(NamedTuple):
    """A priority of a code and a queue."""

    queue: str
    code: str
    keyed: int
    priority: int


class View(NamedTuple):
    """What a look found."""

    levels: dict[str, list[tuple[Any, ...]]]
    """Queue to (priority, code, is keyed, first time), highest first; a row of nothing if somebody is gone."""
    until: int | None
    """When it has to be looked at as a whole; None if it was."""


def levels(queue: str, gaps: Iterable[Gap], known: Iterable[tuple[Level, int]] = ()) -> tuple[str | Value, ...]:
    """Return the call that finds the priorities in use in these gaps, and the first time of each and of the known.

    Args:
        queue: its name.
        gaps: where to look for priorities.
        known: priorities, and the times from which on to look.
    """
    found = [(gap.code, str(gap.keyed), str(gap.highest), str(gap.lowest)) for gap in gaps]
    heads = [(level.code, str(level.keyed), str(level.priority), str(floor)) for level, floor in known]
    return ("levels", queue, *_columns(found), *_columns(heads))


def whole(queue: str, codes: Sequence[str]) -> tuple[str | Value, ...]:
    """Return the call that finds all priorities in use."""
    return levels(queue, _all(codes))


def _all(codes: Sequence[str]) -> list[Gap]:
    return [Gap(code, keyed, _HIGHEST, _LOWEST) for code in codes for keyed in (0, 1)]


def _columns(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(zip(*rows, strict=True)) or ((), (), (), ())


class Floors:
    """What one process knows of the queues it claims from. Used by one thread at a time."""

    def __init__(self) -> None:
        self._asked: tuple[frozenset[str], tuple[str, ...]] | None = None
        self._floors: dict[Level, int] = {}
        self._costly = 0
        """Whole looks in a row that were."""
        self._least: int | None = None
        """What the cheapest look since the last whole one has cost."""
        self._since = self._until = 0
        """Between these times the last whole look will do."""

    def calls(self, queues: Sequence[str], codes: tuple[str, ...], now: int) -> list[tuple[str | Value, ...]]:
        """Return what to look with, one call for each queue."""
        asked = (frozenset(queues), codes)
        if asked != self._asked:
            self._asked, self._floors, self._costly, self._until, self._least = asked, {}, 0, 0, None
        if not self._since <= now < self._until:
            self._until = 0
            return [whole(queue, codes) for queue in queues]
        by_queue: dict[str, list[tuple[Level, int]]] = {queue: [] for queue in queues}
        for level, floor in self._floors.items():
            by_queue[level.queue].append((level, floor))
        return [levels(queue, _between(codes, by_queue[queue]), by_queue[queue]) for queue in queues]

    def note(self, queues: Sequence[str], results: Sequence[Result], now: int) -> View:
        """Note what a look found, as it was to be looked with at this time."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        heads: dict[Level, int] = {}
        spent = 0
        for queue, result in zip(queues, results, strict=True):
            found[queue] = [row for row in result.rows if row[2] != SPENT]
            spent += sum(row[3] for row in result.rows if row[2] == SPENT)
            for priority, code, keyed, head_at in found[queue]:
                if priority is not None:
                    heads[Level(queue, code, keyed, priority)] = head_at
        if self._until:
            self._move(heads, now)
            self._least = spent if self._least is None else min(self._least, spent)
            return View(found, self._until)
        empty = [level for level in self._floors if level not in heads]
        if len(empty) > _MOST_EMPTY:
            empty = []
        self._floors = dict.fromkeys(chain(heads, empty), _LOWEST)
        self._move(heads, now)
        useful = self._least is None or spent > self._least * _USE
        self._costly = self._costly + 1 if useful and spent > COSTLY_US else 0
        self._least = None
        if self._costly >= IN_A_ROW:
            self._since, self._until = now, now + max(_BLIND_US, spent * _SHARE)
        return View(found, None)

    def _move(self, heads: dict[Level, int], now: int) -> None:
        """Raise the floors to where the first runs are, or would be if they came now."""
        late = now - _LATE_US
        for level in heads.keys() | self._floors.keys():
            self._floors[level] = max(min(heads.get(level, late), late), self._floors.get(level, _LOWEST))


def _between(codes: Sequence[str], known: Iterable[tuple[Level, int]]) -> list[Gap]:
    """Return where priorities may be that are not known."""
    gaps = []
    used: dict[tuple[str, int], list[int]] = {}
    for level, _ in known:
        used.setdefault((level.code, level.keyed), []).append(level.priority)
    for gap in _all(codes):
        left = gap
        for priority in sorted(used.get((gap.code, gap.keyed), ()), reverse=True):
            if priority < left.highest:
                gaps.append(left._replace(lowest=priority + 1))
            left = left._replace(highest=priority - 1)
        if left.highest >= left.lowest:
            gaps.append(left)
    return gaps
