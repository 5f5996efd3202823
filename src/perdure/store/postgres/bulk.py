"""`perdure.store.bulk.Bulk` of a schema in a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from perdure.errors import UsageError
from perdure.store.bulk import MARK_NAME, MARK_NUMBER, TABLES, Key, Row, Statements, Table, buried, tags_of
from perdure.store.migrate import Applied, is_exactly, migrations
from perdure.store.postgres.address import address
from perdure.store.postgres.fault import said
from perdure.store.postgres.fault import translate as meaning
from perdure.store.postgres.text import escaped, unescaped_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.store.postgres.address import Address

_TAG = Table("tag", ("key", "value", "run_id"), ("run_id", "key"))
_SESSION = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "lock_timeout": "'10s'"}


def translate(error: Exception) -> Exception | None:
    """Return what to raise instead of an error."""
    if isinstance(error, psycopg.errors.UniqueViolation):
        return UsageError(f"somebody else has written to the target: {said(error)}")
    return meaning(error)


def open_bulk(url: str, *, writing: bool) -> PostgresBulk:
    """Open the schema that a URL names.

    Raises:
        UsageError: there is none, or it is not of this release.
        psycopg.Error: it cannot be reached, or locked.
    """
    where = address(url)
    parameters: dict[str, Any] = {"application_name": "perdure copy", "connect_timeout": "10", **where.parameters}
    connection = psycopg.connect(autocommit=True, prepare_threshold=None, **parameters)
    try:
        return PostgresBulk(connection, where, writing=writing)
    except BaseException:
        connection.close()
        raise


class PostgresBulk:
    """See the module."""

    def __init__(self, connection: psycopg.Connection[Any], where: Address, *, writing: bool) -> None:
        self.translate: Callable[[Exception], Exception | None] = translate
        self._connection = connection
        self._where = where
        self._sql = Statements('"', f'"{where.schema}".{{}}')
        connection.execute("set client_encoding to 'UTF8'")
        self.now: int = int(self._one("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")[0])
        if not writing:
            self._hold()

    def _hold(self) -> None:
        """Begin the transaction in which nobody else can write."""
        self._check()
        self._run("begin isolation level read committed read write")
        for name, value in _SESSION.items():
            self._run(f"set local {name} to {value}")
        names = ", ".join(self._sql.table(name) for name in (*(table.name for table in TABLES), "tag"))
        self._run(f"lock table {names} in share mode")

    def _check(self) -> None:
        name = self._sql.table("schema_migration")
        if self._one("select to_regclass(%s) is null", (name,))[0]:
            message = f"{self._where.shown}: there is no schema {self._where.schema!r} of perdure in this database"
            raise UsageError(message)
        applied = self._query(f"select number, name, checksum from {name} order by number")  # noqa: S608
        if not is_exactly(migrations("postgres"), [Applied._make(row) for row in applied]):
            message = f"{self._where.shown}: not a schema of this release"
            raise UsageError(message, hint="run `perdure migrate`")

    def _run(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.encode(), values)

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        given = [escaped(value) if isinstance(value, str) else value for value in values]
        return [unescaped_row(row) for row in self._run(sql, given).fetchall()]

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Row:
        return self._query(sql, values)[0]

    def counts(self) -> tuple[int, ...]:
        """Return what differs once anything has changed."""
        return tuple(int(value) for sql in self._sql.counts() for value in self._one(sql))

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        name = self._sql.table("worker")
        sql = f"select name from {name} where state = 'live' and expires_at > %s order by name"  # noqa: S608
        return [str(row[0]) for row in self._query(sql, (self.now,))]

    def rows(self, table: Table, after: Key | None = None) -> Iterator[Row]:
        """Yield the rows of a table, in order."""
        if table.name == "run":
            name = self._sql.table("run")
            behind = f"where no > (select no from {name} where id = %s)" if after else ""  # noqa: S608
            sql = f"select {self._sql.named(table.columns)} from {name} {behind} order by no"  # noqa: S608
        else:
            sql = self._sql.select(table, "%s", after=after is not None)
        values = [escaped(value) if isinstance(value, str) else value for value in after or ()]
        with self._connection.cursor() as cursor:
            for row in cursor.stream(sql.encode(), values, binary=True):
                yield unescaped_row(row)

    def last(self, table: Table) -> Key | None:
        """Return the key of the last row."""
        newest = f"select id from {self._sql.table('run')} order by no desc limit 1"  # noqa: S608
        rows = self._query(newest if table.name == "run" else self._sql.last(table))
        return rows[0] if rows else None

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        with self._connection.transaction():
            if table.name == "worker":
                rows = [buried(row) for row in rows]
            if table.remade:
                self._forget(table, rows)
            self._copy(table, rows)
            if table.name == "run":
                self._copy(_TAG, tags_of(table, rows))

    def _forget(self, table: Table, rows: Sequence[Row]) -> None:
        holders = ", ".join(["%s"] * len(table.key))
        name, key = self._sql.table(table.name), self._sql.named(table.key)
        sql = f"delete from {name} where ({key}) = ({holders})"  # noqa: S608
        with self._connection.cursor() as cursor:
            keys = [[escaped(one) if isinstance(one, str) else one for one in table.key_of(row)] for row in rows]
            cursor.executemany(sql.encode(), keys)

    def _copy(self, table: Table, rows: Sequence[Row]) -> None:
        sql = f"copy {self._sql.table(table.name)} ({self._sql.named(table.columns)}) from stdin"
        with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row([escaped(value) if isinstance(value, str) else value for value in row])

    def mark(self) -> str | None:
        """Return what the schema was marked with."""
        name = self._sql.table("schema_migration")
        if self._one("select to_regclass(%s) is null", (name,))[0]:
            return None
        sql = f"select checksum from {name} where number = %s and name = %s"  # noqa: S608
        rows = self._query(sql, (MARK_NUMBER, MARK_NAME))
        return str(rows[0][0]) if rows else None

    def set_mark(self, text: str | None) -> None:
        """Mark the schema, or take the mark away."""
        name = self._sql.table("schema_migration")
        if text is None:
            self._run(self._sql.count_versions())
            self._run(f"delete from {name} where number = %s", (MARK_NUMBER,))  # noqa: S608
        else:
            self._run(f"insert into {name} values (%s, %s, %s, %s)", (MARK_NUMBER, MARK_NAME, text, self.now))  # noqa: S608

    def close(self) -> None:
        """Close the connection; the lock of a source ends with it."""
        self._connection.close()
