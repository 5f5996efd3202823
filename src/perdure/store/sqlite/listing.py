"""Reading: logs, runs by filter, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from perdure.model.filter import Fact, QueueStats, StoreStats
from perdure.model.run import RunRow, WorkerRow
from perdure.model.status import Status
from perdure.store import history
from perdure.store.slots import states
from perdure.store.sqlite.batch import SQL, fetch
from perdure.store.sqlite.queues import reading

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter

_ALL = tuple(status.value for status in Status)
_NO_LIMIT = -1


def load(connection: apsw.Connection, run_id: str, after: int, limit: int | None) -> list[Event]:
    """Return a part of a log, with every link of its chain checked.

    Raises:
        StoreCorrupt: a row is missing, or not what was written.
    """

    def from_place(seq: int, count: int | None) -> list[tuple[Any, ...]]:
        return fetch(connection, "load", run_id, seq, _NO_LIMIT if count is None else count)

    def from_end(count: int) -> list[tuple[Any, ...]]:
        return fetch(connection, "load_tail", run_id, count)

    return history.read(run_id, after, limit, from_place, from_end)


def listing(connection: apsw.Connection, query: RunFilter) -> list[RunRow]:
    """Return the runs that match, newest first.

    By tag if there is one. Otherwise state by state, each from the end of its part of the index: then the cost is that
    of the rows looked at, not of the table.
    """
    if query.limit < 1:
        return []
    where, values = _conditions(query)
    if query.tags:
        return _by_tag(connection, query, where, values)
    statuses = [status for status in _ALL if not query.statuses or status in query.statuses]
    if not statuses:
        return []
    part = f"select * from ({SQL['by_status']} {where} {SQL['newest']})"  # noqa: S608 - named parts only
    statement = f"{' union all '.join([part] * len(statuses))} {SQL['newest']}"
    given: list[str | int] = []
    for status in statuses:
        given += [status, *values, query.limit]
    return [RunRow._make(row) for row in connection.execute(statement, (*given, query.limit)).fetchall()]


def _by_tag(connection: apsw.Connection, query: RunFilter, where: str, values: list[str | int]) -> list[RunRow]:
    (key, value), *others = query.tags
    parts = [SQL["by_tag"], where]
    given: list[str | int] = [key, value, *values]
    for pair in others:
        parts.append(SQL["and_tag"])
        given += pair
    if query.statuses:
        parts.append(SQL["and_status"])
        given.append(msgspec.json.encode(query.statuses).decode())
    parts.append(SQL["newest"])
    return [RunRow._make(row) for row in connection.execute(" ".join(parts), (*given, query.limit)).fetchall()]


def _conditions(query: RunFilter) -> tuple[str, list[str | int]]:
    parts = []
    values: list[str | int] = []
    for name, value in (
        ("and_workflow", query.workflow),
        ("and_version", query.version),
        ("and_queue", query.queue),
        ("and_since", query.since),
        ("and_until", query.until),
    ):
        if value is not None:
            parts.append(SQL[name])
            values.append(value)
    if query.version_ids:
        parts.append(SQL["and_version_ids"])
        values.append(msgspec.json.encode(query.version_ids).decode())
    if query.before is not None:
        parts.append(SQL["and_before"])
        values += query.before
    return " ".join(parts), values


def stats(connection: apsw.Connection, now: int, facts: tuple[Fact, ...]) -> StoreStats:
    """Count runs by state, what is due by queue and workflow, and list the workers; with ``facts`` about the file."""
    runs = {row[0]: row[1] for row in fetch(connection, "count_runs")}
    due: dict[tuple[str, str], tuple[int, int]] = {}
    for queue, workflow in fetch(connection, "pairs"):
        levels = fetch(connection, "levels", queue, msgspec.json.encode([workflow]).decode())
        for priority, _, keyed, head_at in levels:
            if not keyed and head_at <= now:
                _add(due, queue, workflow, *fetch(connection, "count_due", queue, workflow, priority, now)[0])
    for line in fetch(connection, "keyed_due", now):
        _add(due, *line)
    waiting = tuple(QueueStats(*pair, *found) for pair, found in due.items())
    workers = tuple(WorkerRow._make(row) for row in fetch(connection, "workers"))
    return StoreStats(runs, waiting, workers, facts, states(reading(connection), waiting, now))


def _add(due: dict[tuple[str, str], tuple[int, int]], queue: str, workflow: str, count: int, oldest: int) -> None:
    known, since = due.get((queue, workflow), (0, oldest))
    due[queue, workflow] = known + count, min(since, oldest)


def problems(connection: apsw.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file, one line each. Reads all of it."""
    try:
        found = [str(row[0]) for row in connection.execute("pragma integrity_check(100)").fetchall()]
        found += [
            f"a row of {table} belongs to no row of {parent}"
            for table, _, parent, _ in connection.execute("pragma foreign_key_check").fetchall()
        ]
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        return [str(error)]
    return [line for line in found if line != "ok"]
