"""Semantic versions, their order, and ranges."""

from __future__ import annotations

import itertools

import pytest

from perdure.errors import InvalidValue
from perdure.version.label import is_range, parse, parse_range

# From the specification, and what people get wrong: each is below the next.
ASCENDING = [
    "0.0.0",
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0-rc.1.0",
    "1.0.0",
    "1.2.0",
    "1.2.10",
    "1.9.0",
    "1.10.0-0",
    "1.10.0",
    "2.0.0",
    "10.0.0",
]


def test_versions_are_in_order() -> None:
    for low, high in itertools.combinations(ASCENDING, 2):
        assert parse(low).precedence < parse(high).precedence, (low, high)


def test_build_metadata_has_no_precedence() -> None:
    assert parse("1.2.3+a").precedence == parse("1.2.3+b").precedence == parse("1.2.3").precedence


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a..b", "1.2.3 ", "1.2.³",
     "-1.2.3", "1.2.3-é", "1.2.3\n", "1" * 101 + ".0.0", "latest"],
)  # fmt: skip
def test_what_is_no_semantic_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is no semantic version such as"):
        parse(text)


@pytest.mark.parametrize(
    "text,pre", [("1.2.3-rc.1+b.5", True), ("1.2.3-0a", True), ("1.2.3+0-1", False), ("1.2.3--", True)]
)
def test_a_pre_release_is_marked(text: str, pre: bool) -> None:
    assert parse(text).is_pre_release is pre


@pytest.mark.parametrize(
    "text,label",
    [("1.3.0", "1.3.0+5f2a9c1e"), ("1.3.0+b1", "1.3.0+b1.5f2a9c1e"), ("2.0.0-rc.1", "2.0.0-rc.1+5f2a9c1e")],
)
def test_a_label_that_tells_content_apart_is_a_semantic_version(text: str, label: str) -> None:
    assert parse(text).with_hash("5f2a9c1e") == label
    assert parse(label).precedence == parse(text).precedence


@pytest.mark.parametrize(
    "range_,inside,outside",
    [
        (">=1.2,<2", ["1.2.0", "1.10.3", "1.2.0+x"], ["1.1.9", "2.0.0", "2.0.0-rc.1", "1.5.0-rc.1", "1.2.0-rc.1"]),
        (">1.2.0", ["1.2.1"], ["1.2.0", "1.2.0+x"]),
        ("<=1.2", ["1.2.0", "0.1.0"], ["1.2.1"]),
        ("==1.2.0", ["1.2.0", "1.2.0+x"], ["1.2.1", "1.2.0-rc.1"]),
        ("=1", ["1.0.0"], ["1.0.1"]),
        (">=1, !=1.3.0", ["1.2.0"], ["1.3.0", "1.3.0+5f2a9c1e"]),
        (">=2.0.0-rc.1,<3", ["2.0.0-rc.1", "2.0.0-rc.2", "2.0.0", "2.9.0"], ["2.0.0-beta", "2.1.0-rc.1"]),
    ],
)
def test_a_range_holds_what_it_says(range_: str, inside: list[str], outside: list[str]) -> None:
    found = parse_range(range_)
    assert [text for text in inside if parse(text) not in found] == []
    assert [text for text in outside if parse(text) in found] == []


@pytest.mark.parametrize("text", [">=", "1.2", ">=1.2,", ">=1.2 <2", "~1.2", ">=x", ">=1.2.3.4", "", "=>1.0"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_range(text)


def test_a_range_begins_with_a_comparison() -> None:
    assert [is_range(text) for text in (">=1", "<2", "=1", "!=1", " >1", "1.2.3", "", "5f2a9c1e")] == [True] * 5 + [
        False
    ] * 3
