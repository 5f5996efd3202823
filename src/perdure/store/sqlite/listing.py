"""Reading: logs, runs by filter, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from perdure.model.filter import Fact, QueueStats, StoreStats
from perdure.model.run import RunRow, WorkerRow
from perdure.store import history
from perdure.store.listing import statement
from perdure.store.slots import states
from perdure.store.sqlite.batch import SQL, fetch
from perdure.store.sqlite.queues import reading

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter

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
    """Return the runs that match, newest first."""
    wanted = statement(SQL, query, lambda texts: msgspec.json.encode(texts).decode())
    return [RunRow._make(row) for row in connection.execute(*wanted).fetchall()] if wanted else []


def stats(connection: apsw.Connection, now: int, facts: tuple[Fact, ...]) -> StoreStats:
    """Count runs by state, what is due by queue and workflow, and list the workers; with ``facts`` about the file."""
    connection.execute("begin")  # all of it as of one moment: what is due may be claimed meanwhile
    try:
        return _stats(connection, now, facts)
    finally:
        connection.execute("rollback")


def _stats(connection: apsw.Connection, now: int, facts: tuple[Fact, ...]) -> StoreStats:
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
