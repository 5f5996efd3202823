"""The clock of a store that has none of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def system_clock() -> Callable[[], int]:
    """Return a clock that starts at the wall clock and is not moved by it afterwards."""
    base = time.time_ns() - time.monotonic_ns()
    return lambda: (base + time.monotonic_ns()) // 1000
