"""Spans of time are read in every form users write them in; what is no span is refused by the setting's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import InvalidValue
from perdure.model.duration import LONGEST_US, microseconds


@pytest.mark.parametrize(
    "value, expected",
    [
        (0, 0), (3, 3_000_000), (1.5, 1_500_000), (0.0000014, 1), (timedelta(minutes=1), 60_000_000),
        ("200ms", 200_000), ("5us", 5), ("1.5s", 1_500_000), ("2 h", 7_200_000_000), (" 1h30m ", 5_400_000_000),
        ("1d", 86_400_000_000), ("1w", 604_800_000_000), (LONGEST_US // 1_000_000, LONGEST_US),
    ],
)  # fmt: skip
def test_a_span_is_read(value: Any, expected: int) -> None:
    assert microseconds(value) == expected


@pytest.mark.parametrize("value", [True, None, "", "soon", "1", "1x", "-1s", "1s!", float("nan"), [1], b"1s"])
def test_what_is_no_span_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidValue, match="lease must be a span of time"):
        microseconds(value, "lease")


@pytest.mark.parametrize("value", [-1, -0.1, float("inf"), float("-inf"), timedelta(days=-1), "99999999999w", 10**12])
def test_a_span_out_of_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="between 0 and 7,900 years"):
        microseconds(value)


def test_a_wrong_span_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="duration"):
        microseconds("soon")
