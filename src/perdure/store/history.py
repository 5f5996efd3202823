"""A log as it is read: whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import StoreCorrupt
from perdure.model.event import EMPTY_TAIL, Event, broken_link, tail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rows = Sequence[tuple[Any, ...]]


def read(
    run_id: str,
    after: int,
    limit: int | None,
    from_place: Callable[[int, int | None], Rows],
    from_end: Callable[[int], Rows],
) -> list[Event]:
    """Return a part of a log, with every link of its chain checked.

    One row more is read than asked for, before the first: its chain is what the first is checked against.

    Args:
        run_id: whose log.
        after: see `perdure.store.base.Store.load`.
        limit: likewise.
        from_place: returns so many rows from a place on, in order; all of them for None.
        from_end: returns so many rows from the end of the log, backwards.

    Raises:
        StoreCorrupt: a row is missing, or not what was written.
    """
    if after < 0:
        rows = from_end(1 - after)[::-1]
        skip = len(rows) > -after
    else:
        rows = from_place(after, None if limit is None else limit + (after > 0))
        skip = after > 0
    events = [Event._make(row) for row in rows]
    if skip and not events:
        return []
    if after > 0 and events[0].seq != after:
        broken: int | None = after
    else:
        broken = _broken(run_id, events, skip=skip)
    if broken is not None:
        message = f"event {broken} of the log is damaged or missing"
        raise StoreCorrupt(message, run_id=run_id)
    return events[skip:] if limit is None else events[skip : skip + limit]


def _broken(run_id: str, events: Sequence[Event], *, skip: bool) -> int | None:
    try:
        return broken_link(run_id, tail_of(events[0]) if skip else EMPTY_TAIL, events[skip:])
    except (TypeError, ValueError):  # a column of another type than was written
        return events[0].seq
