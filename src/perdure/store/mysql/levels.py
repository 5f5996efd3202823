"""Which priorities of a queue have a time to wake up, and the first such time: found level by level.

The server skips through an index only where it compares with constants. Asked for all levels in one statement, it
reads every entry of a level to get past it. So each is asked for with the one above it as a constant: one look more
than there are levels, each of a few index entries, however many runs wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.store.server.dialect import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.store.mysql.statement import Statement

_HIGHEST, _LOWEST = 2**63 - 1, -(2**63)
_AT_ONCE = 50
"""Lines that one statement asks for."""
_UNION = b"\nunion all\n"
_PLAIN, _KEYED = "level_plain", "level_keyed"


class Line(NamedTuple):
    """Runs that differ in their priority only."""

    place: int
    """Of its queue, among those asked for."""
    queue: str
    code: str
    name: str
    """Of the statement that finds its next level."""


def levels(
    run: Callable[[list[bytes]], Sequence[Result]],
    known: dict[str, Statement],
    asked: Sequence[tuple[str, tuple[str, ...]]],
) -> list[Result]:
    """Return (priority, code, is keyed, first time) for each level, highest first, of each queue and its codes.

    A row of nothing is added to each if there are workers to take over from.
    """
    found: list[list[tuple[Any, ...]]] = [[] for _ in asked]
    below = {
        Line(place, queue, code, name): _HIGHEST
        for place, (queue, codes) in enumerate(asked)
        for code in codes
        for name in (_PLAIN, _KEYED)
    }
    gone = [known["gone"].fill()]
    over: list[tuple[Any, ...]] = []
    while below:
        lines = list(below)
        parts = [
            known[line.name].fill((line.queue, line.code, below[line], number)) for number, line in enumerate(lines)
        ]
        unions = [_UNION.join(parts[start : start + _AT_ONCE]) for start in range(0, len(parts), _AT_ONCE)]
        results = run([*unions, *gone])
        if gone:
            gone, over = [], [(None, None, 0, None)] if results[-1].rows else []
            results = results[:-1]
        below = {}
        for result in results:
            for number, priority, head_at in result.rows:
                line = lines[number]
                found[line.place].append((priority, line.code, int(line.name == _KEYED), head_at))
                if priority > _LOWEST:
                    below[line] = priority - 1
    return [_in_order(rows, over) for rows in found]


def _in_order(rows: list[tuple[Any, ...]], over: list[tuple[Any, ...]]) -> Result:
    rows.sort(key=lambda row: -row[0])
    return Result([*rows, *over], len(rows) + len(over))
