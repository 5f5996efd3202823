"""Reading: logs, listings, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.model.filter import Fact, QueueStats, StoreStats
from perdure.model.run import RunRow, WorkerRow
from perdure.store import history
from perdure.store.listing import statement
from perdure.store.slots import states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event
    from perdure.model.filter import RunFilter
    from perdure.store.server.dialect import Link

    Rows = Sequence[tuple[Any, ...]]

_NO_LIMIT = 2**62


def load(link: Link, run_id: str, after: int, limit: int | None) -> list[Event]:
    """Return a part of a log, with every link of its chain checked.

    Raises:
        StoreCorrupt: a row is missing, or not what was written.
    """

    def from_place(seq: int, count: int | None) -> Rows:
        return link.execute("load", run_id, seq, _NO_LIMIT if count is None else count).rows

    def from_end(count: int) -> Rows:
        return link.execute("load_tail", run_id, count).rows

    return history.read(run_id, after, limit, from_place, from_end)


def listing(link: Link, sql: dict[str, str], query: RunFilter) -> list[RunRow]:
    """Return the runs that match, newest first."""
    wanted = statement(sql, query, lambda texts: texts)
    return [RunRow._make(row) for row in link.query(*wanted).rows] if wanted else []


def stats(link: Link, facts: tuple[Fact, ...], now: int) -> StoreStats:
    """Count runs by state, what is due by queue and workflow, and list the workers; with ``facts`` about the server."""
    counts, waiting, workers = link.many(("count_runs",), ("waiting",), ("workers",))
    runs: Any = dict(counts.rows)
    due = tuple(QueueStats(*row) for row in waiting.rows)

    def fetch(name: str, *values: Any) -> Rows:
        return link.execute(name, *values).rows

    return StoreStats(
        runs, due, tuple(WorkerRow._make(row) for row in workers.rows), facts, states(fetch, due, now)
    )  # fmt: skip
