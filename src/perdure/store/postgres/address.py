"""What a PostgreSQL URL says: libpq's own form, and the schema."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from perdure.errors import UsageError
from perdure.model.url import shown_url

DEFAULT_SCHEMA = "perdure"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(NamedTuple):
    """Where a database is."""

    parameters: dict[str, str]
    """For libpq."""
    schema: str
    pooled: bool
    """The user says that a pooler is in between. Most are noticed without that."""
    shown: str
    """Without user, password and options."""


def address(url: str) -> Address:
    """Return what a URL says.

    Raises:
        UsageError: libpq does not understand it, or the schema's name is not a plain one.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        message = f"schema={schema!r}: a name of small letters, digits and '_', at most 63, is expected"
        raise UsageError(message)
    rest = urlencode([(name, value) for name, value in options if name not in ("schema", "pooled")])
    plain = parts._replace(scheme="postgresql", query=rest, fragment="").geturl()
    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(plain).items()}
    except psycopg.Error:
        message = f"{shown_url(url)}: not a PostgreSQL URL"
        hint = "expected postgresql://user:password@host:5432/database?schema=name"
        raise UsageError(message, hint=hint) from None
    return Address(parameters, schema, dict(options).get("pooled") == "true", shown_url(url))
