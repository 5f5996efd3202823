"""`perdure.store.bulk.Bulk` of a MySQL or MariaDB database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import SSCursor

from perdure.errors import UsageError
from perdure.store.base import StoreOptions
from perdure.store.bulk import MARK_NAME, MARK_NUMBER, TABLES, Key, Row, Statements, Table, buried, tags_of
from perdure.store.migrate import Applied, is_exactly, migrations
from perdure.store.mysql.address import address
from perdure.store.mysql.connection import Connection
from perdure.store.mysql.dialect import MysqlDialect
from perdure.store.mysql.fault import number_of, said
from perdure.store.mysql.fault import translate as meaning
from perdure.store.mysql.literal import literal
from perdure.store.mysql.literal import row as row_text
from perdure.store.mysql.result import Streamed
from perdure.store.server.clock import ServerClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.store.mysql.address import Address

_SQL = Statements("`")
_DEADLINE_S = 600.0
_CHUNK_BYTES = 1 << 20
_DUPLICATE, _NO_TABLE = 1062, 1146
_CLOCK = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
_TAG = b"(%b, %b, (select no from run where id = %b))"


def translate(error: Exception) -> Exception | None:
    """Return what to raise instead of an error."""
    if number_of(error) == _DUPLICATE:
        return UsageError(f"somebody else has written to the target: {said(error)}")
    return meaning(error)


def open_bulk(url: str, *, writing: bool) -> MysqlBulk:
    """Open the database that a URL names.

    Raises:
        UsageError: there is none, or it is not of this release.
        pymysql.err.Error: it cannot be reached, or locked.
    """
    where = address(url)
    parameters = {**where.parameters, "charset": "utf8mb4", "connect_timeout": 10, "autocommit": True}
    connection = Streaming(**parameters, program_name="perdure copy")
    try:
        return MysqlBulk(connection, where, writing=writing)
    except BaseException:
        connection.close()
        raise


class Streaming(Connection):
    """A connection whose rows can be taken one at a time."""

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - the driver's own
        if not unbuffered:
            return super()._read_query_result()
        result = Streamed(self)
        self._result = result
        result.init_unbuffered_query()
        return result.affected_rows or 0


class MysqlBulk:
    """See the module."""

    def __init__(self, connection: Streaming, where: Address, *, writing: bool) -> None:
        self.translate: Callable[[Exception], Exception | None] = translate
        self._connection = connection
        self._where = where
        self._query("set session net_write_timeout = 3600, session wait_timeout = 86400")
        self.now: int = int(self._query(_CLOCK)[0][0])
        if writing:
            dialect = MysqlDialect(where, StoreOptions())
            self._link = dialect.connect(ServerClock(), _DEADLINE_S)
        else:
            self._check()
            names = [*(table.name for table in TABLES), "tag", "schema_migration"]
            self._query("set session lock_wait_timeout = 10")
            self._query(f"lock tables {', '.join(f'`{name}` read' for name in names)}")

    def _check(self) -> None:
        applied = self._if_there("select number, name, checksum from schema_migration order by number")
        if applied is None:
            message = f"{self._where.shown}: there are no tables of perdure in this database"
            raise UsageError(message)
        if not is_exactly(migrations("mysql"), [Applied._make(row) for row in applied]):
            message = f"{self._where.shown}: not a database of this release"
            raise UsageError(message, hint="run `perdure migrate`")

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def _if_there(self, sql: str) -> list[Row] | None:
        try:
            return self._query(sql)
        except pymysql.err.ProgrammingError as error:
            if number_of(error) == _NO_TABLE:
                return None
            raise

    def counts(self) -> tuple[int, ...]:
        """Return what differs once anything has changed."""
        return tuple(int(value) for sql in _SQL.counts() for value in self._query(sql)[0])

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        sql = "select name from worker where state = 'live' and expires_at > %s order by name"
        return [row[0] for row in self._query(sql, (self.now,))]

    def rows(self, table: Table, after: Key | None = None) -> Iterator[Row]:
        """Yield the rows of a table, in order."""
        if table.name == "run":
            no = self._query("select no from run where id = %s", after)[0] if after else (0,)
            sql, values = f"select {_SQL.named(table.columns)} from run where no > %s order by no", no  # noqa: S608
        else:
            sql, values = _SQL.select(table, "%s", after=after is not None), after or ()
        with self._connection.cursor(SSCursor) as cursor:
            cursor.execute(sql, values)
            yield from cursor.fetchall_unbuffered()

    def last(self, table: Table) -> Key | None:
        """Return the key of the last row."""
        rows = self._query("select id from run order by no desc limit 1" if table.name == "run" else _SQL.last(table))
        return rows[0] if rows else None

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        if not rows:
            return
        columns = table.columns
        if table.name == "worker":
            rows = [buried(row) for row in rows]
        tags = tags_of(table, rows) if table.name == "run" else []
        if table.name == "run":
            # The queue once more where there is a wake-up time: see `due_queue` in the schema.
            queue, wake_at = columns.index("queue"), columns.index("wake_at")
            rows = [(*row, None if row[wake_at] is None else row[queue]) for row in rows]
            columns = (*columns, "due_queue")
        head = f"insert into {_SQL.table(table.name)} ({_SQL.named(columns)}) values "  # noqa: S608
        tail = b" on duplicate key update turn_at = values(turn_at)" if table.remade else b""
        statements = [one + tail for one in self._statements(head, [row_text(row) for row in rows])]
        if tags:
            texts = [_TAG % tuple(map(literal, tag)) for tag in tags]
            statements += self._statements("insert into tag (`key`, value, run_no) values ", texts)
        self._link.begin()
        self._link.run(statements, committing=True)

    def _statements(self, head: str, rows: Sequence[bytes]) -> list[bytes]:
        """Return statements of many rows, each as large as the server takes."""
        most = min(_CHUNK_BYTES, self._link.max_packet)
        statements: list[bytes] = []
        part: list[bytes] = []
        size = 0
        for row in rows:
            if part and size + len(row) > most:
                statements.append(head.encode() + b",".join(part))
                part, size = [], 0
            part.append(row)
            size += len(row) + 1
        return [*statements, head.encode() + b",".join(part)]

    def mark(self) -> str | None:
        """Return what the database was marked with."""
        found = self._if_there("select number, name, checksum from schema_migration order by number desc limit 1")
        return str(found[0][2]) if found and found[0][:2] == (MARK_NUMBER, MARK_NAME) else None

    def set_mark(self, text: str | None) -> None:
        """Mark the database, or take the mark away."""
        if text is None:
            self._query(_SQL.count_versions())
            self._query("delete from schema_migration where number = %s", (MARK_NUMBER,))
        else:
            values = (MARK_NUMBER, MARK_NAME, text, self.now)
            self._query("insert into schema_migration values (%s, %s, %s, %s)", values)

    def close(self) -> None:
        """Close the connections; the lock of a source ends with them."""
        self._connection.close()
        link = getattr(self, "_link", None)
        if link is not None:
            link.close()
