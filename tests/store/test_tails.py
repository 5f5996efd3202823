"""The cache of log ends: bounded, never wrong, and it says how often it helped."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.model.cache import CacheStats
from perdure.model.status import EventType
from perdure.model.write import Conflict
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.tails import LARGEST_UNCLAIMED, MOST_TAILS, MOST_UNCLAIMED, Tails
from perdure.testing.author import Author
from perdure.testing.conformance.contract import accept, claim, commit, enlist


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(f"sqlite:///{tmp_path / 'a.db'}", StoreOptions())
    store.open()
    return store


def test_the_statistics_say_how_often_it_helped(store: Store, tmp_path: Path) -> None:
    assert store.log_ends().rate is None
    author = Author("run-1", store.now())
    accept(store, author.create(), author.claimed())
    accept(store, author.step())
    other = open_store(f"sqlite:///{tmp_path / 'a.db'}", StoreOptions())
    other.open()
    accept(other, author.step())
    accept(other, author.step())
    accept(store, author.step())  # here the log ended two events earlier
    assert store.log_ends() == CacheStats(hits=2, misses=1, entries=1, most=MOST_TAILS)
    assert other.log_ends() == CacheStats(hits=1, misses=1, entries=1, most=MOST_TAILS)
    assert store.log_ends().rate == pytest.approx(2 / 3)


@pytest.mark.parametrize("purged_here", [True, False])
def test_what_a_purged_run_was_known_by_is_not_written_to(store: Store, tmp_path: Path, *, purged_here: bool) -> None:
    """The next run may get its number."""
    author = Author("run-1", store.now())
    accept(store, author.create(owner="w1"))
    late = author.stale()
    other = store
    if not purged_here:
        other = open_store(f"sqlite:///{tmp_path / 'a.db'}", StoreOptions())
        other.open()
    accept(other, author.completed())
    accept(other, author.purge())
    accept(other, Author("run-2", store.now()).create(owner="w1"))
    (outcome,) = commit(store, late.step(events=2))
    assert outcome == Conflict(None)
    assert len(store.load("run-2")) == 2


def test_it_is_bounded() -> None:
    tails = Tails()
    for n in range(MOST_UNCLAIMED + 10):
        tails.born(Author(f"run-{n}", 1).create())
    assert len(tails.unclaimed) == MOST_UNCLAIMED
    assert "run-9" not in tails.unclaimed
    assert "run-10" in tails.unclaimed
    tails.update({f"more-{n}": 1 for n in range(MOST_TAILS)})
    tails.count(1, 0)
    assert not tails
    assert not tails.unclaimed


def test_a_large_input_is_not_kept() -> None:
    tails = Tails()
    create = Author("run-1", 1).create()
    first = create.events[0]._replace(input=b"x" * (LARGEST_UNCLAIMED + 1))
    tails.born(replace(create, events=(first, *create.events[1:])))
    assert tails == {"run-1": len(create.events)}
    assert not tails.unclaimed


def test_a_log_of_more_than_its_start_is_not_kept() -> None:
    tails = Tails()
    author = Author("run-1", 1)
    create = author.create()
    tails.born(replace(create, events=(*create.events, *author.step().events)))
    assert tails == {"run-1": 2}
    assert not tails.unclaimed


def test_a_run_that_others_have_had_since_is_read(store: Store, tmp_path: Path) -> None:
    """Recorded here, claimed and handed back by another process: its log is longer than what is known here."""
    author = Author("run-1", store.now())
    accept(store, author.create(), Author("run-2", store.now()).create())
    other = open_store(f"sqlite:///{tmp_path / 'a.db'}", StoreOptions())
    other.open()
    enlist(store, "w1", "w2")
    (taken,) = claim(other, "w2", only="run-1")
    author.follow(taken)
    accept(other, author.move(EventType.RUN_RELEASED, wake_at=store.now()))
    found = {one.row.id: [event.type for event in one.recent] for one in claim(store, "w1")}
    assert found == {"run-1": ["run_started", "run_claimed", "run_released"], "run-2": ["run_started"]}
