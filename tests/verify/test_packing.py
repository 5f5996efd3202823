"""The second implementation of the packing agrees with the first."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from perdure.verify.log import packed

EDGES = [0, 31, 32, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**63 - 1]


@pytest.mark.parametrize("value", [*EDGES, *(-edge - 1 for edge in EDGES), *(-edge for edge in EDGES)])
def test_numbers_at_the_edges_of_their_forms(value: int) -> None:
    assert packed(value) == msgspec.msgpack.encode(value)


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65535, 65536])
def test_texts_and_bytes_at_the_edges_of_their_forms(size: int) -> None:
    assert packed("x" * size) == msgspec.msgpack.encode("x" * size)
    assert packed(b"x" * size) == msgspec.msgpack.encode(b"x" * size)


@given(some.none() | some.integers(-(2**63), 2**63 - 1) | some.text() | some.binary())
def test_any_value_of_a_column(value: str | int | bytes | None) -> None:
    assert packed(value) == msgspec.msgpack.encode(value)
