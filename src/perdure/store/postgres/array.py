"""Columns of values as PostgreSQL's binary arrays: a parameter per column, whatever the number of rows.

Made by hand: the driver's own lists cost ten times as much. This is the hottest of all paths, so what is done for each
value is done by built-in functions.
"""

from __future__ import annotations

import sys
from array import array
from itertools import chain
from struct import Struct
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
_ROOM = _number(8, 0)
"""A number's place in an array: its length, and 8 bytes for itself."""
_MOST_PIECES = 20_000
_SWAPPED = sys.byteorder == "little"


class _Pieces(dict["str | None", bytes]):
    """Texts as they stand in an array. Names, kinds, states and ids come again and again."""

    def __missing__(self, value: str | None) -> bytes:
        if value is None:
            piece = _NULL
        else:
            encoded = escaped(value).encode()
            piece = _length(len(encoded)) + encoded
        if len(piece) < 100:
            if len(self) > _MOST_PIECES:
                self.clear()
            self[value] = piece
        return piece


class _Lengths(dict[int, bytes]):
    """Lengths as they stand before a value. Those of small values are kept."""

    def __missing__(self, length: int) -> bytes:
        written = _length(length)
        if length < 4096:
            self[length] = written
        return written


_pieces = _Pieces()
_lengths = _Lengths()


def texts(values: Sequence[str | None]) -> bytes:
    """Return a ``text[]``.

    Raises:
        UnicodeEncodeError: half of a surrogate pair.
        TypeError: not a text.
    """
    if not values:
        return _head(0, 0, _TEXT, 0, 0)[:12]
    return b"".join([_head(1, 1, _TEXT, len(values), 1), *map(_pieces.__getitem__, values)])


def numbers(values: Sequence[int | None]) -> bytes:
    """Return a ``bigint[]``.

    Raises:
        struct.error: not a number.
        OverflowError: not one of 64 bits.
    """
    head = _head(1, 1, _NUMBER, len(values), 1)
    try:
        native = array("q", values)  # type: ignore[type-var]
    except TypeError:  # there is a null
        return b"".join([head, *[_NULL if value is None else _number(8, value) for value in values]])
    if _SWAPPED:
        native.byteswap()
    halves = array("I", native.tobytes())
    placed = array("I", _ROOM * len(values))
    placed[1::3] = halves[::2]
    placed[2::3] = halves[1::2]
    return head + placed.tobytes()


def blobs(values: Sequence[bytes | None]) -> bytes:
    """Return a ``bytea[]``.

    Raises:
        TypeError: not bytes.
    """
    head = _head(1, 1, _BLOB, len(values), 1)
    if all(values):
        lengths = map(_lengths.__getitem__, map(len, values))  # type: ignore[arg-type]
        return b"".join([head, *chain.from_iterable(zip(lengths, values, strict=True))])  # type: ignore[list-item]
    return b"".join([head, *[_NULL if value is None else _lengths[len(value)] + value for value in values]])
