"""The rows of a database on MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from perdure.errors import UsageError
from perdure.verify.server import Rows, ServerEvidence

_TAGS = "select r.id, t.`key`, t.value from tag as t left join run as r on t.run_no = r.no"
_NO_TABLE = 1146


@contextmanager
def opened(url: str) -> Iterator[ServerEvidence]:
    """Lend the rows of the database that ``url`` names.

    Raises:
        UsageError: it cannot be read, or has no tables of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    parts = urlsplit(url)
    place = f"{parts.hostname}{parts.path}"
    try:
        connection = _connect(url)
        with connection, connection.cursor() as cursor:
            cursor.execute("set session transaction isolation level repeatable read")
            cursor.execute("start transaction with consistent snapshot, read only")

            def ask(sql: str, values: Sequence[Any]) -> Rows:
                cursor.execute(sql, values)
                return list(cursor.fetchall())

            evidence = ServerEvidence(ask, "", _TAGS)
            evidence.check_schema(place)
            yield evidence
    except pymysql.err.Error as error:
        found = error.args[0] if error.args else 0
        message = f"{place}: not a database of perdure" if found == _NO_TABLE else f"{place}: cannot be read: {error}"
        raise UsageError(message) from error


def _connect(url: str) -> pymysql.Connection[Any]:
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    mode = options.get("ssl_mode", "verify_ca" if "ssl_ca" in options else "preferred")
    encryption: dict[str, Any] = {}
    if mode == "disabled":
        encryption = {"ssl_disabled": True}
    elif mode != "preferred":
        encryption = {
            "ssl_ca": options.get("ssl_ca"), "ssl_cert": options.get("ssl_cert"), "ssl_key": options.get("ssl_key"),
            "ssl_verify_cert": mode.startswith("verify"), "ssl_verify_identity": mode == "verify_identity",
        }  # fmt: skip
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or "") or None,
        password=unquote(parts.password or "").encode(),
        database=unquote(parts.path.removeprefix("/")),
        unix_socket=options.get("unix_socket"),
        charset="utf8mb4",
        read_timeout=600,
        **encryption,
    )
