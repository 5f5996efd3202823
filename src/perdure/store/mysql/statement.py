"""Named statements, cut at their parameters once, so that filling them in is a join."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from perdure.store.mysql.literal import Raw, literal, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.store.server.dialect import Value

_PARAMETER = re.compile(rb"rows\(\?\)|\?")


class Statement:
    """SQL with places for values."""

    __slots__ = ("_encoders", "_parts")

    def __init__(self, sql: str) -> None:
        text = sql.encode()
        found = _PARAMETER.findall(text)
        self._parts = _PARAMETER.split(text)
        self._encoders: list[Callable[[Any], bytes]] = [literal if one == b"?" else table for one in found]

    def fill(self, values: Sequence[Value | Raw] = ()) -> bytes:
        """Return it with values.

        Raises:
            UnicodeEncodeError: see `perdure.store.mysql.literal.literal`.
            TypeError: likewise.
            ValueError: as many values as places are needed.
        """
        parts = [self._parts[0]]
        for encode, value, rest in zip(self._encoders, values, self._parts[1:], strict=True):
            parts += (encode(value), rest)
        return b"".join(parts)
