"""Exact round trips of builtin values, without and with annotations."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec.json import JsonCodec
from perdure.errors import CodecError

codec = JsonCodec()

WEIRD = ["", "a\x00b", "\ud800", "\ud83d\udc1f", "🐟 中 é̂", "$", '"$"', "null", "\u2028", "\x7f\x1b[0m"]


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are equal in type, sign of zero, NaN and order of keys too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, Decimal):
        return bool(a.as_tuple() == b.as_tuple())
    if isinstance(a, (dt.datetime, dt.time)):
        return a.replace(tzinfo=None) == b.replace(tzinfo=None) and (
            repr(a.tzinfo) == repr(b.tzinfo) and a.fold == b.fold
        )
    return bool(a == b)


text = st.one_of(st.text(st.characters(exclude_categories=())), st.sampled_from(WEIRD))
whole = st.one_of(st.integers(), st.sampled_from([-1, 1, 3]).map(lambda n: n * 10**5000))
zones = st.one_of(
    st.none(),
    st.timezones(),
    st.just(dt.UTC),
    st.builds(
        dt.timezone,
        st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)),
    ),
    st.builds(dt.timezone, st.just(dt.timedelta(hours=1)), st.sampled_from(["CET", "x"])),
)
hashable = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        whole,
        st.floats(),
        text,
        st.binary(),
        st.decimals().filter(lambda number: not number.is_snan()),  # It refuses to be hashed.
        st.uuids(),
        st.dates(),
        st.datetimes(timezones=zones),
        st.times(),
        st.timedeltas(),
    ),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=6,
)
values = st.recursive(
    st.one_of(hashable, st.just(Decimal("sNaN"))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(text, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=3),
        st.sets(hashable, max_size=3),
        st.tuples(inner),
        st.builds(bytearray, st.binary()),
    ),
    max_leaves=12,
)


@given(values)
def test_any_builtin_value_comes_back_exactly(value: Any) -> None:
    """Semantics 5: what is stored is exact, or refused; never stored approximately."""
    data = codec.encode(value)
    assert same(codec.decode(data), value)
    assert json.loads(data) is not None or value is None
    assert data[0] != 0


@given(values)
def test_an_annotation_that_a_value_fits_does_not_change_it(value: Any) -> None:
    """INV-1 of the tagged form."""
    data = codec.encode(value)
    for annotation in (object, type(value), type(value) | None, Any):
        assert same(codec.decode(data, annotation), value)


@given(values)
def test_a_wrong_annotation_does_not_lose_a_value(value: Any) -> None:
    """INV-1: a function annotated ``-> Nothing`` that returns something is not an error here."""

    class Nothing:
        pass

    assert same(codec.decode(codec.encode(value), Nothing), value)
    assert same(codec.decode(codec.encode(value), dict[str, Nothing]), value)


@given(st.dictionaries(st.one_of(st.just("$"), text), values, max_size=3))
def test_user_dicts_that_look_like_tags_are_escaped(value: dict[str, Any]) -> None:
    """A dict with a ``"$"`` key is data, at any depth, whatever it says."""
    value = {"$": "set", "v": [1], **value}
    assert same(codec.decode(codec.encode([value])), [value])
    assert same(codec.decode(codec.encode({"t": value}), dict[str, Any]), {"t": value})


def test_not_a_number_and_infinities() -> None:
    """SER-07 (ZJU-REAL/Polaris#287, Climate-REF/climate-ref#839): results are valid strict JSON."""
    value = {"m": math.nan, "i": math.inf, "n": -math.inf, "z": -0.0}
    data = codec.encode(value)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(data, parse_constant=refuse)
    assert same(codec.decode(data), value)


@pytest.mark.parametrize("word", WEIRD)
def test_text_that_databases_choke_on(word: str) -> None:
    """SER-06 (kestra-io/kestra PR#10653), SER-09 (celery/celery#4742): unchanged, valid UTF-8."""
    for value in (word, [word], {word: word}, {"k": (word,)}, {word}):
        data = codec.encode(value)
        data.decode("utf-8")
        assert b"\x00" not in data
        assert same(codec.decode(data), value)


def test_null_beside_floats_is_told_from_not_a_number() -> None:
    """The encoder writes both as ``null``; the text "null" must not confuse it either."""
    for value in ([None, 1.5], [None, math.nan], ["null", 1.5], {"null": math.inf}, [[None, 1.0]]):
        assert same(codec.decode(codec.encode(value)), value)


def test_integers_of_any_size() -> None:
    """Semantics 5: huge ints."""
    for number in (2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**600, 10**5000):
        _comes_back(number)


def _comes_back(number: int) -> None:
    for value in (number, -number, [number], {"k": number}, {number: number}):
        assert codec.decode(codec.encode(value)) == value


def test_a_time_zone_keeps_its_name_and_fold() -> None:
    """Two o'clock happens twice that night; the name, not the offset, is what was meant."""
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        value = dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=berlin)
        got = codec.decode(codec.encode(value))
        assert same(got, value)
        assert got.tzinfo is berlin
        assert got.utcoffset() == value.utcoffset()


def test_equal_sets_give_equal_bytes() -> None:
    """Argument digests must not depend on the hash seed of a process."""
    words = [f"w{i}" for i in range(50)]
    backwards = words[::-1]
    assert codec.encode(set(words)) == codec.encode(set(backwards))
    assert codec.encode({(1, "a"), (2, "b")}) == codec.encode({(2, "b"), (1, "a")})


def test_encoding_leaves_the_value_alone() -> None:
    """The caller goes on using what it passed."""
    inner = {"t": (1, 2), "n": None}
    value = [inner, {1, 2}, {"a": [inner]}]
    before = repr(value)
    codec.encode(value)
    assert repr(value) == before


def test_a_sequence_annotation_keeps_a_tuple() -> None:
    """INV-1: it fits already."""
    assert same(codec.decode(codec.encode((1, 2)), Sequence[int]), (1, 2))
    assert same(codec.decode(codec.encode(1), float), 1)


def test_plain_json_becomes_what_the_annotation_asks_for() -> None:
    """Input from HTTP or a command line has no tags."""
    assert codec.decode(b'"2024-01-02"', dt.date) == dt.date(2024, 1, 2)
    assert codec.decode(b"[1,2]", tuple[int, int]) == (1, 2)
    assert codec.decode(b'{"1":"1.10"}', dict[int, Decimal]) == {1: Decimal("1.10")}
    key = uuid.uuid4()
    assert codec.decode(f'["{key}"]'.encode(), list[uuid.UUID]) == [key]
    assert codec.decode(b"[[1]]", list[set[int]] | None) == [{1}]


@pytest.mark.parametrize("data", [b"", b"\x00", b"{", b"nul", b"\xff", b"[" * 100_000, b"\x00z123"])
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    """Damaged data is an error of ours, never of a library underneath."""
    with pytest.raises(CodecError):
        codec.decode(data)
