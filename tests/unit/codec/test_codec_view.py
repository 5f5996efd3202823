"""Stored bytes as plain JSON for people."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.codec.base import open_chain
from perdure.codec.json import JsonCodec
from perdure.codec.view import view
from tests.unit.codec.examples import Access, Colour, Line, Order, Pair, Point

codec = JsonCodec()
KEY = uuid.UUID(int=7)
EAST = dt.timezone(dt.timedelta(hours=2))

SHOWN: list[tuple[Any, Any]] = [
    ({"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
    ((1, {2}), [1, [2]]),
    ({"m": math.nan, "i": -math.inf}, {"m": "nan", "i": "-inf"}),
    ({"$": 1, 2: "b", (1, 2): "c"}, {"$": 1, "2": "b", "[1,2]": "c"}),
    (
        Order(sku="a", at=dt.datetime(2024, 1, 2, tzinfo=dt.UTC), price=Decimal("1.10"), lines=(Point(1),)),
        {"sku": "a", "at": "2024-01-02T00:00:00Z", "price": "1.10", "lines": [{"x": 1, "y": 0.5}]},
    ),
    ([Pair(1), Line(day=dt.date(2024, 1, 2))], [{"left": 1, "right": "r"}, {"day": "2024-01-02", "kind": "a"}]),
    ([Colour.RED, Access.READ | Access.WRITE], ["RED", 3]),
    (dt.datetime(2024, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), "2024-01-02T00:00:00 Europe/Berlin"),
    (dt.datetime(2024, 1, 2, tzinfo=EAST), "2024-01-02T00:00:00+02:00"),
    (dt.datetime(2024, 1, 2), "2024-01-02T00:00:00"),  # noqa: DTZ001 - shown without zone
    (dt.timedelta(1, 2, 3), [1, 2, 3]),
    ([KEY, b"\x00"], [str(KEY), "AA=="]),
    ("a\ud800", "a\\ud800"),
    (16**5000, "0x1" + "0" * 5000),
]


@pytest.mark.parametrize("value, shown", SHOWN, ids=lambda value: type(value).__name__)
def test_a_value_is_shown_as_strict_json(value: Any, shown: Any) -> None:
    """SER-07: the HTTP body is valid strict JSON."""
    got = view(codec.encode(value))
    assert got == shown
    json.dumps(got, allow_nan=False).encode()


def test_a_class_need_not_be_here() -> None:
    """A page must show runs of code that this process does not have."""
    assert view(b'{"$":"dataclass","t":"gone:Gone","v":{"a":1}}') == {"a": 1}


def test_compressed_bytes_are_shown_with_their_codec() -> None:
    """And without it, that they are there."""
    packed = open_chain(("json", "zstd"))
    data = packed.encode(["x"] * 5000)
    assert view(data, packed) == ["x"] * 5000
    assert view(data).startswith("<")


@example(b"", {"$": "dict", "v": "", "z": 1})
@given(
    st.binary(),
    st.recursive(
        st.one_of(
            st.none(), st.text(), st.integers(0, 9), st.sampled_from(["tuple", "dict", "str", "int", "datetime"])
        ),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from(["$", "v", "z", "t"]), inner)),
    ),
)
def test_damaged_bytes_are_shown_as_damaged(data: bytes, tree: Any) -> None:
    """A page that lists runs must not fail for one of them."""
    shown = view(data)
    assert is_json(data) or (isinstance(shown, str) and shown.startswith("<"))
    page = view(json.dumps(tree).encode())
    assert json.loads(json.dumps(page, allow_nan=False)) == page


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
