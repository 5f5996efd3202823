"""Ids made by this process: of runs, workers and commits."""

from __future__ import annotations

import os
import time
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable


def uuid7() -> str:
    """Return a new time-ordered UUID (RFC 9562, version 7) as text."""
    digits = ((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10)).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def is_uuid(text: str) -> bool:
    """Whether ``text`` is a UUID in its usual form."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


class CommitIds:
    """Numbers no other process start uses: 31 random bits, then a counter of 32 bits."""

    __slots__ = ("take",)

    def __init__(self) -> None:
        first = int.from_bytes(os.urandom(4), "big") >> 1 << 32
        self.take: Callable[[], int] = count(first + 1).__next__
        """Return the next one. Fits a signed 64-bit column."""
