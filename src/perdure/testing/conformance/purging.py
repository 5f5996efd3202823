"""Purges: what is gone stays gone, and its id stays taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.filter import RunFilter
from perdure.model.run import Tombstone
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Closed, Conflict, Existing, Missing
from perdure.testing.author import Author
from perdure.testing.conformance.contract import Contract, accept, commit, running

if TYPE_CHECKING:
    from perdure.store.base import Store


class PurgingContract(Contract):
    """S5."""

    def test_a_purge_deletes_all_of_a_terminal_run_and_leaves_a_tombstone(self, store: Store) -> None:
        author = Author("run-1", store.now())
        accept(store, author.create(tags=(("team", "a"),), input_digest=42), author.claimed(), author.send())
        accept(store, author.step(events=3), author.completed())
        accept(store, author.purge())
        assert store.get("run-1") == Tombstone("run-1", "order", 42, "completed", author.at, "ada", "asked for")
        assert store.load("run-1") == []
        assert store.inbox("run-1") == []
        assert store.list(RunFilter()) == []
        assert store.list(RunFilter(tags=(("team", "a"),))) == []

    def test_a_purge_leaves_other_runs_alone(self, store: Store) -> None:
        gone, kept = running(store, "run-1"), running(store, "run-2")
        accept(store, gone.completed(), kept.send(), gone.purge())
        assert len(store.load("run-2")) == 2
        assert len(store.inbox("run-2")) == 1

    def test_a_run_that_is_not_terminal_is_not_purged(self, store: Store) -> None:
        author = running(store)
        assert commit(store, author.purge(), author.step()) == [Closed("running"), COMMITTED]
        assert len(store.load("run-1")) == 3

    def test_purging_what_is_not_there_is_refused(self, store: Store) -> None:
        author = running(store, "run-2")
        assert commit(store, Author("run-1", store.now()).purge()) == [Missing()]
        accept(store, author.completed(), author.purge())
        assert commit(store, author.purge()) == [Missing(store.get("run-2"))]  # type: ignore[arg-type]

    def test_after_a_purge_nothing_can_be_appended(self, store: Store) -> None:
        author = running(store)
        stale = author.stale()
        accept(store, author.completed(), author.purge())
        assert commit(store, stale.stale().step(), author.step()) == [Conflict(None), Conflict(None)]
        assert commit(store, stale.completed()) == [Conflict(None)]
        assert store.load("run-1") == []

    def test_after_a_purge_the_first_place_of_the_log_is_not_free(self, store: Store) -> None:
        author = running(store)
        accept(store, author.completed(), author.purge())
        again = Author("run-1", store.now())
        outcomes = commit(store, again.create(fresh=False), again.step())
        assert isinstance(outcomes[0], Existing)
        assert outcomes[1] == Conflict(None)

    def test_writes_of_a_batch_see_the_purge_before_them(self, store: Store) -> None:
        author = running(store)
        accept(store, author.completed())
        left = Tombstone("run-1", "order", 7, "completed", author.at, "ada", "asked for")
        again = Author("run-1", store.now())
        assert commit(
            store, author.purge(), author.send(), author.step(), again.create(fresh=False), author.purge()
        ) == [
            COMMITTED,
            Missing(left),
            Conflict(None),
            Existing(left),
            Missing(left),
        ]

    def test_a_purge_in_a_batch_with_a_conflict_happens_once(self, store: Store) -> None:
        author, other = running(store, "run-1"), running(store, "run-2")
        rival = other.stale()
        accept(store, author.completed(), other.step())
        assert commit(store, author.purge(), rival.step()) == [COMMITTED, Conflict(3)]
        assert isinstance(store.get("run-1"), Tombstone)

    def test_a_run_can_end_and_be_purged_in_one_batch(self, store: Store) -> None:
        author = Author("run-1", store.now())
        accept(store, author.create(), author.move(EventType.RUN_TERMINATED), author.purge())
        assert isinstance(store.get("run-1"), Tombstone)
