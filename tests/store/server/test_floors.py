"""Where a look at what is due begins while an old snapshot keeps dead index entries, and what that may delay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.server import floors
from perdure.store.server.dialect import Result
from perdure.store.server.floors import Floors, View
from perdure.testing.author import Author
from perdure.testing.conformance.contract import accept, claim, enlist
from tests.servers.fixtures import Database

SECOND = 1_000_000
NOW = 1_000 * SECOND
HIGHEST, LOWEST = str(2**63 - 1), str(-(2**63))
CODE = "0 order"
WHOLE = [("levels", "q", (CODE,) * 2, ("0", "1"), (HIGHEST,) * 2, (LOWEST,) * 2, (), (), (), ())]


def look(known: Floors, now: int, spent: int, *heads: tuple[int, int]) -> View:
    """Look at priorities with their first times, for so long a time of the server."""
    known.calls(["q"], (CODE,), now)
    rows: list[tuple[Any, ...]] = [(priority, CODE, 0, head_at) for priority, head_at in heads]
    return known.note(["q"], [Result([*rows, (None, None, 2, spent)], 0)], now)


def costly(*heads: tuple[int, int], spent: int = 50_000) -> Floors:
    """Give floors that are in use since NOW."""
    known = Floors()
    for _ in range(floors.IN_A_ROW):
        look(known, NOW, spent, *heads)
    return known


def asked(known: Floors, now: int) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Give the gaps in which priorities without a key are looked for, and the known ones with their floors."""
    ((_, _, _, keyed, highest, lowest, _, _, priorities, starts),) = known.calls(["q"], (CODE,), now)
    gaps: Any = zip(highest, lowest, keyed, strict=True)  # type: ignore[arg-type]
    known_ones: Any = zip(priorities, starts, strict=True)  # type: ignore[arg-type]
    return [gap[:2] for gap in gaps if gap[2] == "0"], {one: int(start) for one, start in known_ones}


def test_looks_that_are_cheap_are_whole() -> None:
    known = Floors()
    for _ in range(50):
        assert known.calls(["q"], (CODE,), NOW) == WHOLE
        assert look(known, NOW, floors.COSTLY_US, (0, NOW)).until is None


def test_one_cheap_look_in_between_keeps_them_whole() -> None:
    known = Floors()
    for number in range(50):
        look(known, NOW, 100 if number % floors.IN_A_ROW == 0 else 10**6, (0, NOW))
        assert known.calls(["q"], (CODE,), NOW) == WHOLE


def test_costly_looks_are_followed_by_some_that_begin_where_the_first_run_is() -> None:
    known = costly((5, NOW - 30 * SECOND), (0, NOW + 9))
    gaps, starts = asked(known, NOW)
    assert gaps == [(HIGHEST, "6"), ("4", "1"), ("-1", LOWEST)]
    assert starts == {"5": NOW - 30 * SECOND, "0": NOW - SECOND}
    assert look(known, NOW + 10, 100, (5, NOW - 20 * SECOND)).until == NOW + SECOND
    assert asked(known, NOW + 20)[1] == {"5": NOW - 20 * SECOND, "0": NOW - SECOND + 10}


def test_a_whole_look_is_made_again_after_a_second_or_ten_times_its_cost() -> None:
    for spent, wait in ((50_000, SECOND), (400_000, 4 * SECOND)):
        known = costly((0, NOW), spent=spent)
        assert known.calls(["q"], (CODE,), NOW + wait - 1) != WHOLE
        assert known.calls(["q"], (CODE,), NOW + wait) == WHOLE


def test_a_clock_that_went_back_brings_a_whole_look() -> None:
    assert costly((0, NOW)).calls(["q"], (CODE,), NOW - 1) == WHOLE


def test_a_whole_look_finds_what_was_recorded_late() -> None:
    known = costly((0, NOW))
    look(known, NOW + SECOND, 50_000, (0, NOW - 3_600 * SECOND))
    assert asked(known, NOW + SECOND)[1] == {"0": NOW - 3_600 * SECOND}


def test_a_priority_in_which_nothing_waits_is_remembered() -> None:
    known = costly((5, NOW), (0, NOW))
    look(known, NOW + SECOND, 50_000, (0, NOW))
    assert asked(known, NOW + SECOND)[1].keys() == {"5", "0"}


def test_not_all_that_were_ever_used_are_remembered() -> None:
    known = costly(*((priority, NOW) for priority in range(500)))
    look(known, NOW + SECOND, 50_000, (0, NOW))
    assert asked(known, NOW + SECOND)[1].keys() == {"0"}


def test_a_new_priority_is_looked_for_and_known_from_then_on() -> None:
    known = costly((0, NOW))
    look(known, NOW + 10, 100, (7, NOW - SECOND * 2), (0, NOW))
    assert asked(known, NOW + 20) == (
        [(HIGHEST, "8"), ("6", "1"), ("-1", LOWEST)],
        {"7": NOW - SECOND * 2, "0": NOW - SECOND + 10},
    )


def test_floors_are_given_up_where_they_save_nothing() -> None:
    known = costly((0, NOW))
    look(known, NOW + 10, 40_000, (0, NOW))
    look(known, NOW + SECOND, 50_000, (0, NOW))
    assert known.calls(["q"], (CODE,), NOW + SECOND) == WHOLE


def test_they_are_of_one_worker_and_its_code() -> None:
    known = costly((0, NOW))
    assert known.calls(["q", "r"], (CODE,), NOW)[0] == WHOLE[0]
    assert costly((0, NOW)).calls(["q"], (), NOW) == [("levels", "q", *[()] * 8)]


@pytest.fixture
def store(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Give a store with a worker to which every whole look is a costly one, and no other."""
    monkeypatch.setattr(floors, "COSTLY_US", -1)
    monkeypatch.setattr(floors, "_USE", -1)
    store = open_store(database.url, StoreOptions())
    store.open()
    enlist(store, "w1")
    yield store
    store.close()


def use_floors(store: Store, **options: Any) -> float:
    """Claim so often that floors come into use, and give when the last whole look was made at the latest."""
    for number in range(floors.IN_A_ROW):
        accept(store, Author(f"first-{number}", store.now()).create(**options))
        assert len(claim(store, "w1")) == 1
    return time.monotonic()


@pytest.mark.parametrize("key", [None, "k"])
def test_a_run_that_is_recorded_late_waits_a_second_at_most(store: Store, key: str | None) -> None:
    began = use_floors(store, partition_key=key)
    accept(store, Author("late", store.now() - 3_600 * SECOND).create(partition_key=key))
    accept(store, Author("due", store.now()).create(partition_key=key))
    accept(store, Author("urgent", store.now() - 3_600 * SECOND).create(priority=9, partition_key=key))
    taken = claim(store, "w1", limit=1) + claim(store, "w1", limit=1)
    if key is None:
        assert [one.row.id for one in taken] == ["urgent", "due"]
        assert not claim(store, "w1")
        assert store.inner.quiet_until() <= store.now() + SECOND  # type: ignore[attr-defined]
    while len(taken) < 3:
        assert time.monotonic() - began < 3
        taken += claim(store, "w1")
    assert {one.row.id for one in taken} == {"late", "due", "urgent"}


def test_what_comes_while_floors_are_in_use_is_taken_at_once(store: Store) -> None:
    use_floors(store)
    for number in range(30):
        accept(store, Author(f"next-{number}", store.now() - number * 20_000).create(priority=number % 3))
        assert [one.row.id for one in claim(store, "w1")] == [f"next-{number}"]
