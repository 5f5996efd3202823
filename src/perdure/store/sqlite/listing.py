"""Reading: logs, runs by filter, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.errors import StoreCorrupt
from perdure.model.event import EMPTY_TAIL, Event, broken_link, tail_of
from perdure.model.filter import QueueStats, StoreStats
from perdure.model.run import RunRow, WorkerRow
from perdure.model.status import Status
from perdure.store.sqlite.batch import SQL

if TYPE_CHECKING:
    import apsw

    from perdure.model.filter import RunFilter

_ALL = tuple(status.value for status in Status)
_NO_LIMIT = -1


def load(connection: apsw.Connection, run_id: str, after: int, limit: int | None) -> list[Event]:
    """Return a part of a log, with every link of its chain checked.

    One row more is read than asked for, before the first: its chain is what the first is checked against.

    Raises:
        StoreCorrupt: a row is missing, or not what was written.
    """
    if after < 0:
        rows = connection.execute(SQL["load_tail"], (run_id, 1 - after)).fetchall()[::-1]
        skip = len(rows) > -after
    else:
        count = _NO_LIMIT if limit is None else limit + (after > 0)
        rows = connection.execute(SQL["load"], (run_id, after, count)).fetchall()
        skip = after > 0
    events = [Event._make(row) for row in rows]
    if skip and not events:
        return []
    if after > 0 and events[0].seq != after:
        broken: int | None = after
    else:
        broken = broken_link(run_id, tail_of(events[0]) if skip else EMPTY_TAIL, events[skip:])
    if broken is not None:
        message = f"event {broken} of the log is damaged or missing"
        raise StoreCorrupt(message, run_id=run_id)
    return events[skip:] if limit is None else events[skip : skip + limit]


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
    order = "order by created_at desc, id desc limit ?"
    part = f"select * from (select * from run indexed by run_listing where status = ?{where} {order})"  # noqa: S608 - fixed parts
    statement = f"{' union all '.join([part] * len(statuses))} {order}"
    given: list[object] = []
    for status in statuses:
        given += [status, *values, query.limit]
    return [RunRow._make(row) for row in connection.execute(statement, (*given, query.limit)).fetchall()]


def _by_tag(connection: apsw.Connection, query: RunFilter, where: str, values: list[object]) -> list[RunRow]:
    (key, value), *others = query.tags
    statement = "select run.* from tag as t cross join run on run.id = t.run_id where t.key = ? and t.value = ?" + where
    given: list[object] = [key, value, *values]
    for pair in others:
        statement += " and exists (select 1 from tag as o where o.key = ? and o.value = ? and o.run_id = run.id)"
        given += pair
    if query.statuses:
        statement += " and run.status in (select value from json_each(?))"
        given.append(msgspec.json.encode(query.statuses).decode())
    statement += " order by run.created_at desc, run.id desc limit ?"
    return [RunRow._make(row) for row in connection.execute(statement, (*given, query.limit)).fetchall()]


def _conditions(query: RunFilter) -> tuple[str, list[object]]:
    where, values = "", []
    for condition, value in (
        (" and workflow = ?", query.workflow),
        (" and workflow_version = ?", query.version),
        (" and queue = ?", query.queue),
        (" and created_at >= ?", query.since),
        (" and created_at < ?", query.until),
    ):
        if value is not None:
            where += condition
            values.append(value)
    if query.before is not None:
        where += " and (created_at, id) < (?, ?)"
        values += query.before
    return where, values


def stats(connection: apsw.Connection, now: int) -> StoreStats:
    """Count runs by state, what is due by queue and workflow, and list the workers."""
    execute = connection.execute
    runs = dict(execute(SQL["count_runs"]).fetchall())
    waiting = []
    for queue, workflow in execute(SQL["pairs"]).fetchall():
        names = tuple(msgspec.json.encode([name]).decode() for name in (queue, workflow))
        due, oldest = 0, now
        for priority, _, _ in execute(SQL["slots"], (*names, now)).fetchall():
            count, first = execute(SQL["count_due"], (queue, workflow, priority, now)).fetchall()[0]
            due, oldest = due + count, min(oldest, first)
        if due:
            waiting.append(QueueStats(queue, workflow, due, oldest))
    workers = tuple(WorkerRow._make(row) for row in execute(SQL["workers"]).fetchall())
    return StoreStats(runs, tuple(waiting), workers)
