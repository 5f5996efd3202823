"""Spans of time as users write them: seconds, `timedelta`, or text such as ``"200ms"``, ``"30s"``, ``"2h"``."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from perdure.errors import InvalidValue

Duration = float | int | str | timedelta

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_TEXT = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:us|ms|s|m|h|d|w)\s*)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)")
LONGEST_US = 250_000_000_000_000_000
"""Some 7,900 years: with today's date still before the year 9999."""


def microseconds(value: Duration, what: str = "duration") -> int:
    """Return ``value`` in whole microseconds.

    Args:
        value: a span; text may combine units, as in ``"1h30m"``.
        what: names the setting in the error.

    Raises:
        InvalidValue: negative, not finite, longer than can be stored, or not a span at all. It is a ValueError too.
    """
    result = _parse(value)
    if result is None:
        message = f"{what} must be a span of time such as 1.5, '200ms', '30s', '2h' or a timedelta, not {value!r}"
        raise InvalidValue(message)
    if not 0 <= result <= LONGEST_US:
        message = f"{what} must be between 0 and 7,900 years, not {value!r}"
        raise InvalidValue(message)
    return int(result)


def _parse(value: object) -> float | int | None:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1_000_000
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value * 1_000_000 if math.isinf(value) else round(value * 1_000_000)
    if isinstance(value, str) and _TEXT.fullmatch(value.strip()):
        return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value)))
    return None
