"""Values as SQL text, in bytes. The only place where a value becomes part of a statement.

Correct for a connection whose character set is utf8mb4, where no byte of a longer character is a quote or a backslash,
and whose sql_mode lets a backslash escape. Both are set, and nothing else is accepted, before any statement is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.store.server.dialect import Value

NULL = b"null"
_MOST_TEXTS = 20_000
_texts: dict[str, bytes] = {}
"""Names, kinds, states and ids come again and again."""


def literal(value: Value | Raw) -> bytes:
    """Return a value as SQL.

    Raises:
        UnicodeEncodeError: half of a surrogate pair.
        TypeError: not a type of a column.
    """
    if value is None:
        return NULL
    kind: Any = type(value)  # three looks at a type cost less than one call
    known: Any = value
    if kind is int:
        return b"%d" % known
    if kind is bytes:
        return b"_binary'" + known.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"  # type: ignore[no-any-return]
    if kind is str:
        return _texts.get(known) or _text(known)
    return _unusual(value)


def _text(value: str) -> bytes:
    text = b"'" + value.encode().replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"
    if len(text) < 100:
        if len(_texts) > _MOST_TEXTS:
            _texts.clear()
        _texts[value] = text
    return text


def _unusual(value: Value | Raw) -> bytes:
    if isinstance(value, Raw):
        return value.sql
    if isinstance(value, tuple):
        return b", ".join([literal(one) for one in value]) or NULL
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):  # an enumeration's member
        return _text(str(value))
    message = f"{type(value).__name__} is no type of a column"
    raise TypeError(message)


class Raw(NamedTuple):
    """SQL that is ready to be used in the place of a value."""

    sql: bytes


def row(values: Iterable[Value]) -> bytes:
    """Return values as a row of an INSERT or of a list of keys."""
    return b"(" + b",".join([literal(value) for value in values]) + b")"


def table(value: Value) -> bytes:
    """Return texts as a table of one column ``value``."""
    texts = value if isinstance(value, tuple) and value else (None,)
    return b"(" + b" union all ".join([b"select " + literal(text) + b" as value" for text in texts]) + b")"
