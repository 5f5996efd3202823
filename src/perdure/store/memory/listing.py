"""Reading: runs by filter, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.filter import QueueStats

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from perdure.model.filter import RunFilter
    from perdure.model.run import RunRow


def matches(row: RunRow, tags: AbstractSet[tuple[str, str]], query: RunFilter) -> bool:
    """Whether a run with these tags is one that is asked for."""
    return (
        (not query.statuses or row.status in query.statuses)
        and query.workflow in (None, row.workflow)
        and query.version in (None, row.workflow_version)
        and (not query.version_ids or row.version_id in query.version_ids)
        and query.queue in (None, row.queue)
        and tags >= set(query.tags)
        and (query.since is None or row.created_at >= query.since)
        and (query.until is None or row.created_at < query.until)
        and (query.before is None or (row.created_at, row.id) < query.before)
    )


def by_status(rows: Iterable[RunRow]) -> dict[str, int]:
    """Count runs by state."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return counts


def due(rows: Iterable[RunRow], now: int) -> tuple[QueueStats, ...]:
    """Count what is due, by queue and code."""
    times: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.wake_at is not None and row.wake_at <= now:
            times.setdefault((row.queue, row.code), []).append(row.wake_at)
    return tuple(QueueStats(*key, len(since), min(since)) for key, since in sorted(times.items()))
