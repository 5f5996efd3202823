"""`perdure.store.bulk.Bulk` of an SQLite file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

from perdure.errors import UsageError
from perdure.store.bulk import MARK_NAME, MARK_NUMBER, Key, Row, Statements, Table, buried, tags_of
from perdure.store.migrate import is_exactly, migrations
from perdure.store.sqlite import place, schema
from perdure.store.sqlite.fault import translate
from perdure.store.sqlite.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SQL = Statements('"')
_WAIT_S = 10.0
_RUN = "select {} from run where no > coalesce((select no from run where id = ?), 0) order by no"
_EVENT = "select r.id, {} from run as r cross join event_log as e on e.run_no = r.no {} order by r.id, e.seq"
_EVENT_AFTER = "where r.id >= ?1 and (r.id > ?1 or e.seq > ?2)"
_LAST = {
    "run": "select id from run order by no desc limit 1",
    "event": """
        select r.id, e.seq from run as r cross join event_log as e on e.run_no = r.no
        order by r.id desc, e.seq desc limit 1
    """,
}
_TAG = "insert into tag (key, value, run_id) values (?, ?, ?)"
_LATEST = """
    update meta set last_at = max(
        last_at, coalesce((select max(updated_at) from run), 0), coalesce((select max(at) from event_log), 0)
    )
"""


def open_bulk(url: str, *, writing: bool) -> SqliteBulk:
    """Open the file that a URL names.

    Raises:
        UsageError: there is none, or it is not of this release.
    """
    path = place.path_of(url)
    if path is None:
        message = "a store in memory cannot be copied"
        raise UsageError(message, hint="expected sqlite:///file.db")
    file = place.check(path, read_only=False, must_exist=True)
    session = Session(file, durability="host", busy_timeout_s=_WAIT_S, read_only=False, inspect=_nothing)
    return SqliteBulk(session, writing=writing)


def _nothing(_: apsw.Connection) -> None:
    """Take the file as it is: a target may be marked."""


def _check(connection: apsw.Connection) -> None:
    if not is_exactly(migrations("sqlite"), schema.SqliteSchema(connection).applied()):
        message = f"{connection.filename}: not a database of this release"
        raise UsageError(message, hint="run `perdure migrate`")


class SqliteBulk:
    """See the module."""

    def __init__(self, session: Session, *, writing: bool) -> None:
        self.translate: Callable[[Exception], Exception | None] = translate
        self.now: int = time.time_ns() // 1000
        self._session = session
        session.connect()
        try:
            if not writing:
                _check(session.writer)
                session.begin()  # nobody else writes until it is rolled back
        except BaseException:
            session.close()
            raise

    def counts(self) -> tuple[int, ...]:
        """Return what differs once anything has changed."""
        reader = self._session.reader
        return tuple(value for sql in _SQL.counts("event_log") for row in reader.execute(sql) for value in row)

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        sql = "select name from worker where state = 'live' and expires_at > ? order by name"
        return [str(name) for (name,) in self._session.reader.execute(sql, (self.now,)).fetchall()]

    def rows(self, table: Table, after: Key | None = None) -> Iterator[Row]:
        """Yield the rows of a table, in order."""
        if table.name == "run":
            sql, values = _RUN.format(_SQL.named(table.columns)), after or (None,)
        elif table.name == "event":
            where = "" if after is None else _EVENT_AFTER
            sql, values = _EVENT.format(_SQL.named(table.columns[1:], "e."), where), after or ()
        else:
            sql, values = _SQL.select(table, "?", after=after is not None), after or ()
        yield from self._session.reader.cursor().execute(sql, values)

    def last(self, table: Table) -> Key | None:
        """Return the key of the last row."""
        rows = self._session.reader.execute(_LAST.get(table.name) or _SQL.last(table)).fetchall()
        return rows[0] if rows else None

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        writer = self._session.writer
        holders = ", ".join("?" * (len(table.columns)))
        with writer:
            if table.name == "event":
                others = holders.removeprefix("?, ")
                sql = f"insert into event_log values ((select no from run where id = ?), {others})"  # noqa: S608
                writer.executemany(sql, rows)
                return
            if table.name == "worker":
                rows = [buried(row) for row in rows]
            sql = f"insert into {_SQL.table(table.name)} ({_SQL.named(table.columns)}) values ({holders})"  # noqa: S608
            if table.remade:
                sql += " on conflict do update set turn_at = excluded.turn_at"
            writer.executemany(sql, rows)
            if table.name == "run":
                writer.executemany(_TAG, tags_of(table, rows))

    def mark(self) -> str | None:
        """Return what the file was marked with."""
        sql = "select checksum from schema_migration where number = ? and name = ?"
        if not self._session.reader.table_exists("main", "schema_migration"):
            return None
        rows = self._session.reader.execute(sql, (MARK_NUMBER, MARK_NAME)).fetchall()
        return str(rows[0][0]) if rows else None

    def set_mark(self, text: str | None) -> None:
        """Mark the file, or take the mark away."""
        writer = self._session.writer
        with writer:
            if text is not None:
                values = (MARK_NUMBER, MARK_NAME, text)
                writer.execute("insert into schema_migration values (?, ?, ?, unixepoch() * 1000000)", values)
                return
            writer.execute(_LATEST)
            writer.execute(_SQL.count_versions())
            writer.execute("delete from schema_migration where number = ?", (MARK_NUMBER,))

    def close(self) -> None:
        """Close the file; the lock of a source ends with it."""
        self._session.close()
