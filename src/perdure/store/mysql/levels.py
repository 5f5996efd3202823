"""Which priorities of a queue have a time to wake up, and the first such time: found level by level.

The server skips through an index only where it compares with constants. Asked for all levels in one statement, it
reads every entry of a level to get past it. So each is asked for with the one above it as a constant: one look more
than there are levels, each of a few index entries, however many runs wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.store.server.dialect import Result
from perdure.store.server.floors import SPENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.store.mysql.statement import Statement
    from perdure.store.server.clock import ServerClock

_AT_ONCE = 50
"""Lines that one statement asks for."""
_UNION = b"\nunion all\n"
_GONE, _TOOK = -1, -2
"""Stand for the number of a line where the row is about something else."""
_LEVEL, _HEAD = ("level_plain", "level_keyed"), ("head_plain", "head_keyed")


class Line(NamedTuple):
    """Runs that differ in their priority only, and where to look among them."""

    place: int
    """Of its queue, among those asked for."""
    name: str
    """Of the statement that looks there."""
    queue: str
    code: str
    highest: int
    """Or the one that is known."""
    lowest: int
    """Or from when on to look for the first time of the one that is known."""


def levels(
    run: Callable[[list[bytes]], Sequence[Result]],
    known: dict[str, Statement],
    clock: ServerClock,
    asked: Sequence[Sequence[Any]],
) -> list[Result]:
    """Return (priority, code, is keyed, first time) for each level, highest first, of each that was asked for.

    A row of nothing is added to each if there are workers to take over from, and to the first what this took.
    `perdure.store.server.floors.levels` says how to ask.
    """
    found: list[list[tuple[Any, ...]]] = [[] for _ in asked]
    lines = [line for place, values in enumerate(asked) for line in _lines(place, *values)]
    gone, took = [known["gone"].fill((_GONE,))], known["took"].fill((_TOOK,))
    others: list[list[tuple[Any, ...]]] = [[] for _ in asked]
    spent = 0
    while lines or gone:
        parts = [*gone, *(known[line.name].fill((*line[2:], number)) for number, line in enumerate(lines))]
        gone = []
        unions = [
            _UNION.join([*parts[start : start + _AT_ONCE], took]) for start in range(0, len(parts), _AT_ONCE)
        ]  # fmt: skip
        below: list[Line] = []
        for number, priority, head_at in (row for result in run(unions) for row in result.rows):
            if number == _TOOK:
                spent += int(priority)
                clock.hear(int(head_at) + int(priority))
                continue
            if number == _GONE:
                others = [[(None, None, 0, None)] for _ in asked]
                continue
            line = lines[number]
            found[line.place].append((priority, line.code, int(line.name in (_LEVEL[1], _HEAD[1])), head_at))
            if line.name in _LEVEL and priority > line.lowest:
                below.append(line._replace(highest=priority - 1))
        lines = below
    if others:
        others[0].append((None, None, SPENT, spent))
    return [_in_order(rows, over) for rows, over in zip(found, others, strict=True)]


def demand(known: dict[str, Statement], queues: tuple[str, ...], parked: str) -> bytes:
    """Return the statement ``demand`` with what runs of each queue wait for, which is found where it is a constant."""
    return _UNION.join([known["demand"].fill((queues, parked)), *(known["first_code"].fill((one,)) for one in queues)])


def _lines(place: int, queue: str, *columns: tuple[str, ...]) -> Iterator[Line]:
    for names, (codes, keyed, *numbers) in ((_LEVEL, columns[:4]), (_HEAD, columns[4:])):
        for code, of_key, first, second in zip(codes, keyed, *numbers, strict=True):
            yield Line(place, names[int(of_key)], queue, code, int(first), int(second))


def _in_order(rows: list[tuple[Any, ...]], over: list[tuple[Any, ...]]) -> Result:
    rows.sort(key=lambda row: -row[0])
    return Result([*rows, *over], len(rows) + len(over))
