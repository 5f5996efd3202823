"""Reading: logs, listings, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.model.filter import Fact, QueueStats, StoreStats
from perdure.model.run import RunRow, WorkerRow
from perdure.model.status import Status
from perdure.store import history
from perdure.store.slots import states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event
    from perdure.model.filter import RunFilter
    from perdure.store.server.dialect import Link, Value

    Rows = Sequence[tuple[Any, ...]]

_ALL = tuple(status.value for status in Status)
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
    """Return the runs that match, newest first.

    By tag if there is one. Otherwise state by state, each from the end of its part of the index: then the cost is that
    of the rows looked at, not of the table.
    """
    if query.limit < 1:
        return []
    where, values = _conditions(sql, query)
    if query.tags:
        statement, given = _by_tag(sql, query, where, values)
    else:
        statuses = [status for status in _ALL if not query.statuses or status in query.statuses]
        if not statuses:
            return []
        part = f"select * from ({sql['by_status']} {where} {sql['newest']}) as s"  # noqa: S608 - named parts only
        statement = " union all ".join([part] * len(statuses))
        given = []
        for status in statuses:
            given += [status, *values, query.limit]
    rows = link.query(f"{statement} {sql['newest']}", (*given, query.limit)).rows
    return [RunRow._make(row) for row in rows]


def _by_tag(sql: dict[str, str], query: RunFilter, where: str, values: Sequence[Value]) -> tuple[str, list[Value]]:
    (key, value), *others = query.tags
    parts = [sql["by_tag"], where]
    given: list[Value] = [key, value, *values]
    for pair in others:
        parts.append(sql["and_tag"])
        given += pair
    if query.statuses:
        parts.append(sql["and_status"])
        given.append(query.statuses)
    return " ".join(parts), given


def _conditions(sql: dict[str, str], query: RunFilter) -> tuple[str, list[Value]]:
    parts = []
    values: list[Value] = []
    for name, value in (
        ("and_workflow", query.workflow),
        ("and_version", query.version),
        ("and_queue", query.queue),
        ("and_since", query.since),
        ("and_until", query.until),
    ):
        if value is not None:
            parts.append(sql[name])
            values.append(value)
    if query.version_ids:
        parts.append(sql["and_version_ids"])
        values.append(tuple(map(str, query.version_ids)))
    if query.before is not None:
        parts.append(sql["and_before"])
        values += query.before
    return " ".join(parts), values


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
