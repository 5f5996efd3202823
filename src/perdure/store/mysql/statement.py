"""Named statements, cut at their parameters once, so that filling them in is a join."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from perdure.store.mysql.literal import Raw, literal, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.store.server.dialect import Value

_PARAMETER = re.compile(rb"rows\(\?\d*\)|\?\d*")


class Statement:
    """SQL with places for values."""

    __slots__ = ("_encoders", "_order", "_parts")

    def __init__(self, sql: str) -> None:
        text = sql.encode()
        found = _PARAMETER.findall(text)
        self._parts = _PARAMETER.split(text)
        self._encoders: list[Callable[[Any], bytes]] = [literal if one[:1] == b"?" else table for one in found]
        numbers = [int(one.strip(b"rows(?)") or 0) - 1 for one in found]
        self._order: list[int] | None = numbers if any(number >= 0 for number in numbers) else None
        """Which of the values stands in which place, where they are numbered."""

    def fill(self, values: Sequence[Value | Raw] = ()) -> bytes:
        """Return it with values.

        Raises:
            UnicodeEncodeError: see `perdure.store.mysql.literal.literal`.
            TypeError: likewise.
            ValueError: as many values as places are needed.
        """
        if self._order is not None:
            values = [values[number] for number in self._order]
        parts = [self._parts[0]]
        for encode, value, rest in zip(self._encoders, values, self._parts[1:], strict=True):
            parts += (encode(value), rest)
        return b"".join(parts)
