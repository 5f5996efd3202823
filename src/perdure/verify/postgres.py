"""The rows of a database on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg

from perdure.errors import UsageError
from perdure.verify.server import Rows, ServerEvidence

DEFAULT_SCHEMA = "perdure"


@contextmanager
def opened(url: str) -> Iterator[ServerEvidence]:
    """Lend the rows of the database that ``url`` names.

    Raises:
        UsageError: it cannot be read, or has no tables of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    place = f"{parts.hostname or ''}{parts.path}"
    tables = '"{}".'.format(schema.replace('"', '""'))
    try:
        with psycopg.connect(parts._replace(scheme="postgresql", query=rest).geturl()) as connection:
            connection.execute("set transaction isolation level repeatable read read only")

            def ask(sql: str, values: Sequence[Any]) -> Rows:
                return [_plain(row) for row in connection.execute(sql, [*map(_stored, values)])]

            evidence = ServerEvidence(ask, tables, _tags(tables))
            evidence.check_schema(place)
            yield evidence
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        message = f"{place}: not a database of perdure"
        raise UsageError(message) from error
    except psycopg.Error as error:
        message = f"{place}: cannot be read: {error}"
        raise UsageError(message) from error


def _tags(tables: str) -> str:
    return f"select r.id, t.key, t.value from {tables}tag as t left join {tables}run as r on t.run_id = r.id"  # noqa: S608


def _stored(value: Any) -> Any:
    """Return a text as it is stored: NUL, which PostgreSQL does not hold, as two characters U+0001."""
    return value.replace("\1", "\1\2").replace("\0", "\1\1") if isinstance(value, str) else value


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return texts as they were before they were stored."""
    return tuple(
        value.replace("\1\1", "\0").replace("\1\2", "\1") if isinstance(value, str) and "\1" in value else value
        for value in row
    )
