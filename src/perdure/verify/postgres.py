"""The rows of a schema on a PostgreSQL server, read in one snapshot, beside workers that run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from perdure.errors import SchemaTooNew, UsageError
from perdure.verify.evidence import Case, Fact, Grave, Standing

if TYPE_CHECKING:
    import psycopg

KNOWN_SCHEMA = 1
"""The number of the last migration whose tables this reads."""
_AT_ONCE = 2_000
_RUNS = """
    select id, status, wake_at, owner, epoch, inbox_n, tags, created_at, updated_at from {schema}.run order by id
"""
_FACTS = "select * from {schema}.event order by run_id, seq"
_INBOX = "select run_id, n from {schema}.inbox order by run_id, n"
_TAGS = "select run_id, key, value from {schema}.tag order by run_id"
_STRAYS = """
    select distinct run_id from {schema}.{table} as t
    where not exists (select 1 from {schema}.run as r where r.id = t.run_id)
"""


class PostgresEvidence:
    """`perdure.verify.evidence.Evidence` of one connection, inside a read-only transaction with one snapshot."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._names = (f"verify_{n}" for n in itertools.count())
        self._trouble: list[str] = []

    def _rows(self, sql: str, **names: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows, a part of them in memory at a time."""
        statement = sql.format(schema=f'"{self._schema}"', **names).encode()
        with self._connection.cursor(next(self._names)) as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(statement)
            for row in cursor:
                yield tuple(_plain(value) for value in row)

    def damage(self) -> Iterator[str]:
        """Yield nothing: the server checks its own files."""
        return iter(())

    def cases(self) -> Iterator[Case]:
        """Yield every run, in the order of their ids."""
        belongings = [_Sorted(self._rows(sql)) for sql in (_FACTS, _INBOX, _TAGS)]
        for columns in self._rows(_RUNS):
            row = Standing._make(columns)
            facts, inbox, tags = (rows.of(row.id) for rows in belongings)
            yield Case(
                row, [Fact._make(fact[1:]) for fact in facts], [n for _, n in inbox],
                {(key, value) for _, key, value in tags},
            )  # fmt: skip

    def graves(self) -> Iterator[Grave]:
        """Yield every tombstone."""
        return map(Grave._make, self._rows("select run_id, status from {schema}.request order by run_id"))

    def strays(self) -> Iterator[tuple[str, str]]:
        """Yield table and key of rows that belong to no run."""
        for table in ("event", "inbox", "tag"):
            for (key,) in self._rows(_STRAYS, table=table):
                yield table, str(key)


class _Sorted:
    """Rows in the order of run ids, taken run by run."""

    def __init__(self, rows: Iterator[tuple[Any, ...]]) -> None:
        self._groups = groupby(rows, key=itemgetter(0))
        self._run_id: str | None = None
        self._group: Iterator[tuple[Any, ...]] = iter(())

    def of(self, run_id: str) -> list[tuple[Any, ...]]:
        """Return the rows of a run; ids must be asked for in order."""
        while self._run_id is None or self._run_id < run_id:
            try:
                self._run_id, self._group = next(self._groups)
            except StopIteration:
                return []
        return list(self._group) if self._run_id == run_id else []


def _plain(value: object) -> object:
    """Return a text as it was given: NUL is stored as U+0001 U+0001, and U+0001 as U+0001 U+0002."""
    if isinstance(value, str) and "\1" in value:
        return value.replace("\1\1", "\0").replace("\1\2", "\1")
    return value


@contextmanager
def opened(url: str) -> Iterator[PostgresEvidence]:
    """Lend the rows of the schema that ``url`` names.

    Raises:
        UsageError: it cannot be read, or it is no database of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        message = "postgresql:// needs a driver: pip install 'perdure[postgres]'"
        raise UsageError(message) from None
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema", "perdure")
    options.pop("pooled", None)
    place = parts._replace(scheme="postgresql", query=urlencode(options)).geturl()
    try:
        with psycopg.connect(place, client_encoding="UTF8") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            _check_schema(connection, schema)
            yield PostgresEvidence(connection, schema)
    except psycopg.Error as error:
        message = f"{parts.hostname or 'the server'}: cannot be read: {str(error).strip().splitlines()[0]}"
        raise UsageError(message) from None


def _check_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    row = connection.execute("select to_regclass(format('%%I.schema_migration', %s::text))", (schema,)).fetchone()
    if row is None or row[0] is None:
        message = f"schema {schema!r}: not a database of perdure"
        raise UsageError(message)
    row = connection.execute(f'select max(number) from "{schema}".schema_migration'.encode()).fetchone()  # noqa: S608
    last = row[0] if row else None
    if last is None or last < KNOWN_SCHEMA:
        message = f"schema {schema!r} is not complete"
        raise UsageError(message, hint="run `perdure migrate`")
    if last > KNOWN_SCHEMA:
        message = f"the database has schema {last:04d}, this release knows {KNOWN_SCHEMA:04d}"
        raise SchemaTooNew(message)
