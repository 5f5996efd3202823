"""The rows of a MySQL or MariaDB database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.cursors import SSCursor

from perdure.errors import UsageError
from perdure.verify.readers.server import ServerEvidence
from perdure.verify.schema import check_schema

_LAST_MIGRATION = 6
"""Whose tables are read here."""
_TAGS = "select r.id, t.key, t.value from tag as t inner join run as r on r.no = t.run_no where r.id in ({})"
_STRAY_TAGS = "select distinct t.run_no from tag as t where not exists (select 1 from run as r where r.no = t.run_no)"
_NO_TABLE = 1146
_SNAPSHOT = (
    "set session transaction isolation level repeatable read",
    "set session net_write_timeout = 3600",
    "start transaction with consistent snapshot, read only",
)


@contextmanager
def opened(url: str) -> Iterator[ServerEvidence]:
    """Lend the rows of the database that ``url`` names.

    Raises:
        UsageError: it cannot be read, or is no database of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    parts = urlsplit(url)
    place = f"mysql://{parts.hostname or ''}{parts.path}"
    try:
        with closing(pymysql.connect(**_address(url), charset="utf8mb4", connect_timeout=10)) as connection:

            def query(sql: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
                with connection.cursor(SSCursor) as cursor:
                    cursor.execute(sql, values)
                    yield from cursor.fetchall_unbuffered()

            with connection.cursor() as cursor:
                for statement in _SNAPSHOT:
                    cursor.execute(statement)
            (last,) = next(query("select max(number) from schema_migration where number < 9999", ()))
            check_schema(place, last, _LAST_MIGRATION)
            yield ServerEvidence(query, _TAGS, _STRAY_TAGS, "`change`")
    except pymysql.err.Error as error:
        if error.args and error.args[0] == _NO_TABLE:
            message = f"{place}: not a database of perdure"
            raise UsageError(message) from error
        message = f"{place}: cannot be read: {error.args[-1] if error.args else error}"
        raise UsageError(message) from error


def _address(url: str) -> dict[str, Any]:
    """Return what the driver is to be given."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    mode = options.get("ssl_mode", "verify_ca" if "ssl_ca" in options else "preferred").lower()
    given: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "") or None,
        "password": unquote(parts.password or "").encode(),
        "database": unquote(parts.path.removeprefix("/")),
    }
    given |= {name: options[name] for name in ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key") if name in options}
    if mode == "disabled":
        given["ssl_disabled"] = True
    elif mode == "required":
        given["ssl"] = {"check_hostname": False}
    elif mode in ("verify_ca", "verify_identity"):
        given |= {"ssl_verify_cert": True, "ssl_verify_identity": mode == "verify_identity"}
    return given
