"""Columns of values as PostgreSQL's binary arrays: a parameter per column, whatever the number of rows.

Made by hand: the driver's own lists cost ten times as much, and this is the hottest of all paths.
"""

from __future__ import annotations

from itertools import chain, repeat
from struct import Struct, pack
from typing import TYPE_CHECKING

from perdure.store.postgres.text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS, NUMBERS, BLOBS = 1009, 1016, 1001
"""Object ids of ``text[]``, ``bigint[]``, ``bytea[]``."""
_TEXT, _NUMBER, _BLOB = 25, 20, 17
_head = Struct(">iiiii").pack
_length = Struct(">i").pack
_number = Struct(">iq").pack
_NULL = _length(-1)
_MOST_PIECES = 20_000
_pieces: dict[str | None, bytes] = {None: _NULL}
"""Texts as they stand in an array. Names, kinds, states and ids come again and again."""


def texts(values: Sequence[str | None]) -> bytes:
    """Return a ``text[]``.

    Raises:
        UnicodeEncodeError: half of a surrogate pair.
        AttributeError: not a text.
    """
    if not values:
        return _head(0, 0, _TEXT, 0, 0)[:12]
    known = _pieces.get
    return b"".join([_head(1, 1, _TEXT, len(values), 1), *[known(value) or _piece(value) for value in values]])


def _piece(value: str | None) -> bytes:
    assert value is not None  # noqa: S101 - always known
    encoded = escaped(value).encode()
    piece = _length(len(encoded)) + encoded
    if len(encoded) < 100:
        if len(_pieces) > _MOST_PIECES:
            _pieces.clear()
            _pieces[None] = _NULL
        _pieces[value] = piece
    return piece


def numbers(values: Sequence[int | None]) -> bytes:
    """Return a ``bigint[]``.

    Raises:
        struct.error: not a number, or not one of 64 bits.
    """
    count = len(values)
    head = _head(1, 1, _NUMBER, count, 1)
    if None in values:
        return b"".join([head, *[_NULL if value is None else _number(8, value) for value in values]])
    return head + pack(f">{'iq' * count}", *chain.from_iterable(zip(repeat(8), values, strict=False)))


def blobs(values: Sequence[bytes | None]) -> bytes:
    """Return a ``bytea[]``.

    Raises:
        TypeError: not bytes.
    """
    parts = [_head(1, 1, _BLOB, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_length(len(value)), value)
    return b"".join(parts)
