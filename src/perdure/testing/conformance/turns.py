"""Queues: whose turn it is among runs with partition keys, and with ageing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from perdure.model.claim import Claims
from perdure.model.status import EventType
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, enlist, row_of
from perdure.testing.conformance.filling import add, change, claims, end, ids

if TYPE_CHECKING:
    from perdure.store.base import Store


class TurnsContract(Contract):
    """The order in which `Store.claim` takes runs that have partition keys, or age."""

    # ---- partition keys ----

    def test_runs_with_one_key_are_limited_and_hide_no_others(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency_per_key=2))
        add(store, *(f"a{n}" for n in range(40)), key="a", age=9)
        add(store, "b0", "b1", "b2", key="b")
        add(store, "free")
        first = claim(store)
        assert sorted(ids(first)) == ["a0", "a1", "b0", "b1", "free"]
        assert claims(store) == Claims([], held=True)
        end(store, first[0])
        assert ids(claim(store)) == ["a2"]

    def test_priority_holds_within_a_key(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency_per_key=1))
        for priority in (0, 10, 5):
            add(store, f"p{priority}", key="k", priority=priority)
        order = []
        for _ in range(3):
            (one,) = claim(store)
            order.append(one.row.id)
            end(store, one)
        assert order == ["p10", "p5", "p0"]

    def test_keys_share_a_limit_over_workflows(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency_per_key=1))
        add(store, "a", key="k", workflow="x")
        add(store, "b", key="k", workflow="y")
        assert len(claim(store, workflows=("x", "y"))) == 1
        assert claim(store, workflows=("x", "y")) == []

    def test_without_fairness_what_is_longest_due_comes_first_whatever_its_key(self, store: Store) -> None:
        enlist(store, "w1")
        for n, (run_id, key) in enumerate((("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", "x"))):
            add(store, run_id, key=key, age=9 - n)
        assert ids(claim(store, limit=2)) == ["a", "b"]
        assert ids(claim(store)) == ["c", "d", "e"]

    @pytest.mark.parametrize("limit", [1, 5])
    def test_in_a_fair_queue_keys_take_turns(self, store: Store, limit: int) -> None:
        enlist(store, "w1")
        accept(store, change(fair=1))
        add(store, *(f"a{n:02}" for n in range(30)), key="a", age=60)
        add(store, *(f"b{n:02}" for n in range(5)), key="b", age=30)
        add(store, *(f"c{n:02}" for n in range(5)), key="c", age=20)
        order = []
        for _ in range(15 // limit):
            order += ids(claim(store, limit=limit))
        assert [Counter(run_id[0] for run_id in order[n : n + 3]) for n in range(0, 15, 3)] == [
            Counter(a=1, b=1, c=1)
        ] * 5
        assert order == sorted(order, key=lambda run_id: run_id[1:])

    def test_a_key_that_comes_later_waits_for_each_other_key_once_at_most(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(fair=1))
        for key in "abcd":
            add(store, *(f"{key}{n}" for n in range(10)), key=key, age=60)
        claim(store, limit=6)
        add(store, "late", key="late")
        assert "late" in ids(claim(store, limit=5))

    def test_a_key_whose_runs_are_not_due_is_stepped_over(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(fair=1, concurrency_per_key=1))
        add(store, "later", key="a", age=-3600)
        add(store, "now", key="b")
        add(store, "sooner", key="a", age=-0.05)
        assert ids(claim(store)) == ["now"]
        time.sleep(0.06)
        assert ids(claim(store)) == ["sooner"]

    def test_a_run_that_comes_back_stands_in_its_key_s_line(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency_per_key=1))
        add(store, "a", key="k", age=2)
        (first,) = claim(store)
        end(store, first, kind=EventType.RUN_WAITING, wake_at=store.now() + 3600 * SECOND)
        add(store, "b", key="k", age=1)
        (second,) = claim(store)
        assert second.row.id == "b"
        accept(store, Author("a", store.now()).send())
        assert claim(store) == []
        end(store, second)
        assert ids(claim(store)) == ["a"]

    def test_a_line_of_which_all_was_cancelled_leaves_nothing_behind(self, store: Store) -> None:
        enlist(store, "w1")
        for n in range(5):
            author = Author(f"run-{n}", store.now())
            accept(store, author.create(partition_key=f"k{n}"), author.move(EventType.RUN_CANCELLED))
        assert claim(store) == []
        add(store, "a", key="k1")
        assert ids(claim(store)) == ["a"]

    def test_the_key_is_in_the_row(self, store: Store) -> None:
        add(store, "a", key="ключ")
        add(store, "b")
        assert [row_of(store, run_id).partition_key for run_id in "ab"] == ["ключ", None]

    # ---- ageing ----

    def test_with_ageing_a_run_gains_a_level_in_each_span(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(ageing_us=10 * SECOND))
        add(store, "old", age=31)
        add(store, "high", priority=3)
        add(store, "newer", age=29)
        assert ids(claim(store)) == ["old", "high", "newer"]

    def test_with_ageing_a_run_is_overtaken_only_by_what_came_within_its_bound(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(ageing_us=SECOND))
        add(store, "low", age=5)
        for n in range(8):
            add(store, f"high-{n}", priority=4, age=8 - n - 0.5)
        order = ids(claim(store, limit=20))
        # Of priority 4: what became due less than four seconds after it comes first, and nothing else.
        assert order.index("low") == sum(8 - n - 0.5 > 5 - 4 for n in range(8))

    def test_without_ageing_priorities_are_strict(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=9))
        add(store, "old", age=10_000)
        add(store, "high", priority=1)
        assert ids(claim(store)) == ["high", "old"]
