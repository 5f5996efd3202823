"""Arrays made by hand are what the server takes them for."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.store.base import StoreOptions, open_store
from perdure.store.postgres import array
from perdure.store.postgres.array import BLOBS, NUMBERS, TEXTS, blobs, numbers, texts
from perdure.store.postgres.link import Call, PostgresLink, Statement
from tests.servers.fixtures import Database

THERE_AND_BACK = Statement("select * from unnest($1::text [], $2::bigint [], $3::bytea [])", (TEXTS, NUMBERS, BLOBS))
ROW = st.tuples(
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=120),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(max_size=5000),
)


@pytest.fixture
def link(postgres_db: Database) -> Iterator[PostgresLink]:
    store = open_store(postgres_db.url, StoreOptions())
    store.open()
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        yield link
    store.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=40))
def test_what_goes_out_comes_back(link: PostgresLink, rows: list[tuple[str | None, int | None, bytes | None]]) -> None:
    some_texts, some_numbers, some_blobs = zip(*rows, strict=True)
    values = [texts(some_texts), numbers(some_numbers), blobs(some_blobs)]
    (result,) = link.run([Call(THERE_AND_BACK, values)])
    assert result.rows == rows


def test_the_texts_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array, "_MOST_PIECES", 10)
    for number in range(50):
        texts([f"text {number}", None, "x" * 200])
    assert len(array._pieces) <= 12
    assert texts([None, "a"]).endswith(b"\xff\xff\xff\xff\x00\x00\x00\x01a")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.5, "1"])
def test_what_is_no_number_of_64_bits_is_refused(value: int) -> None:
    for values in ([value], [None, value]):
        with pytest.raises((struct.error, OverflowError)):
            numbers(values)


def test_what_is_no_text_and_what_are_no_bytes_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        texts(["a", "\ud800"])
    with pytest.raises(TypeError):
        texts([1])  # type: ignore[list-item]
    for values in (["a"], [None, "a"]):
        with pytest.raises(TypeError):
            blobs(values)  # type: ignore[arg-type]
