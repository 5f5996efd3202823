"""Reads: logs, listings, counts, the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.model.filter import QueueStats, RunFilter
from perdure.model.status import EventType
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, Contract, accept, enlist, running

if TYPE_CHECKING:
    from perdure.store.base import Store


def listed(store: Store, **conditions: object) -> list[str]:
    """Return the ids of a listing."""
    return [row.id for row in store.list(RunFilter(**conditions))]  # type: ignore[arg-type]


class ReadingContract(Contract):
    """`Store.get`, `Store.load`, `Store.list`, `Store.stats`, `Store.now`."""

    def test_what_is_not_there_is_none_or_empty(self, store: Store) -> None:
        assert store.get("nothing") is None
        assert store.load("nothing") == []
        assert store.load("nothing", after=3) == []
        assert store.load("nothing", after=-3) == []
        assert store.inbox("nothing") == []
        assert store.list(RunFilter()) == []

    def test_the_runs_that_go_on_are_told_from_the_others(self, store: Store) -> None:
        assert store.going_on([]) == []
        accept(store, Author("pending", store.now()).create())
        running(store, "running")
        ended = running(store, "ended")
        accept(store, ended.completed())
        asked = ["ended", "nothing", "pending", "\ud800", "running"]
        assert sorted(store.going_on(asked)) == ["pending", "running"]
        assert sorted(store.going_on(asked * 3)) == ["pending", "running"]
        assert len(store.going_on(["pending", *(f"other-{n}" for n in range(3000))])) == 1

    def test_an_id_that_cannot_be_stored_is_not_there(self, store: Store) -> None:
        assert store.get("\ud800") is None
        assert store.load("\ud800") == []
        assert store.inbox("\ud800") == []

    def test_a_log_is_read_from_any_place_in_order(self, store: Store) -> None:
        author = running(store)
        accept(store, author.step(events=8))
        for after, limit, expected in (
            (0, None, range(1, 11)),
            (0, 3, range(1, 4)),
            (4, None, range(5, 11)),
            (4, 2, range(5, 7)),
            (9, 5, range(10, 11)),
            (10, None, ()),
            (99, None, ()),
            (-1, None, range(10, 11)),
            (-3, None, range(8, 11)),
            (-3, 2, range(8, 10)),
            (-10, None, range(1, 11)),
            (-99, None, range(1, 11)),
            (0, 0, ()),
            (4, 0, ()),
            (-3, 0, ()),
        ):
            assert [event.seq for event in store.load("run-1", after, limit)] == list(expected), (after, limit)

    def test_a_long_log_is_read_whole(self, store: Store) -> None:
        author = running(store)
        accept(store, *(author.step(events=50) for _ in range(40)))
        assert [event.seq for event in store.load("run-1")] == list(range(1, 2003))

    def test_a_listing_is_newest_first(self, store: Store) -> None:
        now = store.now()
        for run_id, age in (("b", 2), ("a", 2), ("d", 0), ("c", 1)):
            author = Author(run_id, now - age * SECOND)
            accept(store, author.create())
            if run_id in "ad":
                accept(store, author.claimed())
        assert listed(store) == ["d", "c", "b", "a"]
        assert listed(store, limit=3) == ["d", "c", "b"]
        assert listed(store, limit=0) == []

    def test_a_listing_can_be_continued_behind_any_row(self, store: Store) -> None:
        now = store.now()
        for n in range(11):
            author = Author(f"run-{n:02}", now + n // 3)
            accept(store, author.create(), *([author.claimed()] if n % 2 else []))
        whole = listed(store)
        assert whole == sorted(whole, reverse=True)
        pages: list[str] = []
        before = None
        while page := store.list(RunFilter(limit=4, before=before)):
            pages += [row.id for row in page]
            before = (page[-1].created_at, page[-1].id)
        assert pages == whole

    def test_conditions_of_a_listing_all_hold(self, store: Store) -> None:
        now = store.now()
        for n, (workflow, version, queue) in enumerate(
            [("x", "1", "p"), ("x", "2", "p"), ("y", "1", "q"), ("x", "1", "q")]
        ):
            author = Author(f"run-{n}", now + n)
            accept(store, author.create(workflow=workflow, version=version, queue=queue))
            if n % 2:
                accept(store, author.claimed())
        assert listed(store, workflow="x") == ["run-3", "run-1", "run-0"]
        assert listed(store, workflow="x", version="1") == ["run-3", "run-0"]
        assert listed(store, queue="q") == ["run-3", "run-2"]
        assert listed(store, statuses=("running",)) == ["run-3", "run-1"]
        assert listed(store, statuses=("running", "pending"), queue="p") == ["run-1", "run-0"]
        assert listed(store, statuses=("failed",)) == []
        assert listed(store, since=now + 1) == ["run-3", "run-2", "run-1"]
        assert listed(store, until=now + 1) == ["run-0"]
        assert listed(store, since=now + 1, until=now + 3, statuses=("pending",)) == ["run-2"]

    def test_a_listing_by_tags_wants_all_of_them(self, store: Store) -> None:
        now = store.now()
        for n, tags in enumerate([(("a", "1"),), (("a", "1"), ("b", "2")), (("b", "2"),), (("a", "2"),)]):
            accept(store, Author(f"run-{n}", now + n).create(tags=tags, queue=f"q{n % 2}"))
        assert listed(store, tags=(("a", "1"),)) == ["run-1", "run-0"]
        assert listed(store, tags=(("b", "2"), ("a", "1"))) == ["run-1"]
        assert listed(store, tags=(("a", "1"),), queue="q0") == ["run-0"]
        assert listed(store, tags=(("b", "2"),), statuses=("pending",), limit=1) == ["run-2"]
        assert listed(store, tags=(("b", "2"),), before=(now + 2, "run-2")) == ["run-1"]
        assert listed(store, tags=(("a", "1"), ("a", "2"))) == []

    @pytest.mark.parametrize("text", ["'", "%", "_", "\0", "x' or '1'='1", '"', "*", "\\"])
    def test_conditions_are_values_and_never_patterns(self, store: Store, author: Author, text: str) -> None:
        accept(store, author.create(tags=(("a", "1"),)))
        for conditions in ({"workflow": text}, {"queue": text}, {"tags": ((text, text),)}, {"statuses": (text,)}):
            assert listed(store, **conditions) == []

    def test_stats_count_runs_due_work_and_workers(self, store: Store) -> None:
        now = store.now()
        for n, (queue, workflow, age, priority) in enumerate(
            [("q1", "x", 5, 0), ("q1", "x", 9, 3), ("q1", "y", 1, 0), ("q2", "x", -3600, 0), ("q2", "y", 2, -1)]
        ):
            create = Author(f"run-{n}", now).create(
                queue=queue, workflow=workflow, priority=priority, wake_at=now - age * SECOND
            )
            accept(store, create)
        accept(store, running(store, "gone").completed())
        accept(store, running(store, "parked").move(EventType.RUN_PARKED))
        enlist(store, "w2", "w1")
        stats = store.stats()
        assert stats.runs == {"pending": 5, "completed": 1, "parked": 1}
        assert sorted(stats.waiting) == [
            QueueStats("q1", "0 x", 2, now - 9 * SECOND),
            QueueStats("q1", "0 y", 1, now - SECOND),
            QueueStats("q2", "0 y", 1, now - 2 * SECOND),
        ]
        assert [worker.id for worker in stats.workers] == ["w1", "w2"]

    def test_facts_have_names_and_a_good_store_has_no_problem(self, store: Store) -> None:
        facts = store.stats().facts
        assert len({fact.name for fact in facts}) == len(facts) > 0
        assert [fact for fact in facts if fact.problem] == []

    def test_the_clock_does_not_go_back(self, store: Store) -> None:
        times = [store.now() for _ in range(2000)]
        assert times == sorted(times)
        assert times[0] > 1_600_000_000 * SECOND
