"""The rows of a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg

from perdure.errors import UsageError
from perdure.verify.readers.server import ServerEvidence
from perdure.verify.schema import check_schema

_LAST_MIGRATION = 7
"""Whose tables are read here."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TAGS = "select run_id, key, value from tag where run_id in ({})"
_STRAY_TAGS = "select distinct t.run_id from tag as t where not exists (select 1 from run as r where r.id = t.run_id)"


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with its texts as they were given: U+0001 U+0001 stands for NUL, U+0001 U+0002 for U+0001."""
    if not any(isinstance(value, str) and "\1" in value for value in row):
        return row
    return tuple(
        value.replace("\1\1", "\0").replace("\1\2", "\1") if isinstance(value, str) else value for value in row
    )


def stored(text: str) -> str:
    """Return the form in which a text is stored."""
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


@contextmanager
def opened(url: str) -> Iterator[ServerEvidence]:
    """Lend the rows of the database that ``url`` names.

    Raises:
        UsageError: it cannot be read, or is no database of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    place, schema, conninfo = _address(url)
    try:
        with psycopg.connect(conninfo, autocommit=True, client_encoding="UTF8") as connection:

            def query(sql: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
                with connection.cursor() as cursor:
                    for row in cursor.stream(sql, [stored(value) for value in values]):
                        yield plain(row)

            connection.execute("begin isolation level repeatable read read only")
            connection.execute(f'set local search_path to "{schema}", pg_temp')
            connection.execute("set local statement_timeout to 0")
            (known,) = next(query("select to_regclass(%s) is not null", (f'"{schema}".schema_migration',)))
            if not known:
                message = f"{place}: there is no schema {schema!r} of perdure in this database"
                raise UsageError(message)
            (last,) = next(query("select max(number) from schema_migration where number < 9999", ()))
            check_schema(place, last, _LAST_MIGRATION)
            yield ServerEvidence(query, _TAGS, _STRAY_TAGS)
    except psycopg.Error as error:
        message = f"{place}: cannot be read: {(str(error).strip().splitlines() or ['?'])[0]}"
        raise UsageError(message) from error


def _address(url: str) -> tuple[str, str, str]:
    """Return what to call the database, its schema, and what the driver is to be given."""
    parts = urlsplit(url)
    place = f"postgresql://{parts.hostname or ''}{parts.path}"
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", "perdure")
    if not _SCHEMA.fullmatch(schema):
        message = f"schema={schema!r}: a name of small letters, digits and '_' is expected"
        raise UsageError(message)
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    return place, schema, parts._replace(scheme="postgresql", query=rest, fragment="").geturl()
