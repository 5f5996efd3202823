"""Queues: limits that hold in claims, keys that take turns, ageing, rates, pauses, deduplication."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from perdure.model.claim import ClaimRequest, Claims
from perdure.model.queue import QueueRow
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Counted, Existing, SetQueue
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of

if TYPE_CHECKING:
    from perdure.model.claim import Claimed
    from perdure.model.filter import QueueState
    from perdure.store.base import Store

_ids = count(secrets.randbits(60))


def change(queue: str = "default", *, declared: bool = False, **values: int | None) -> SetQueue:
    """Return a change of a queue's settings."""
    return SetQueue(queue, tuple(values.items()), 5, "ada", "because", next(_ids), declared)


def add(store: Store, *run_ids: str, key: str | None = None, priority: int = 0, age: float = 0, queue: str = "default",
        workflow: str = "order") -> None:  # fmt: skip
    """Create runs that are due since ``age`` seconds."""
    now = store.now()
    for run_id in run_ids:
        author = Author(run_id, now)
        create = author.create(
            queue=queue, workflow=workflow, priority=priority, wake_at=now - round(age * SECOND), partition_key=key
        )
        accept(store, create)


def claims(store: Store, limit: int = 10, worker_id: str = "w1") -> Claims:
    """Claim and return the whole answer."""
    found = store.claim(ClaimRequest(worker_id, ("default",), ("order",), limit), claims_for(worker_id))
    assert found is not None
    return found


def ids(claimed: list[Claimed]) -> list[str]:
    """Return the ids of the claimed runs."""
    return [one.row.id for one in claimed]


def end(store: Store, *claimed: Claimed, kind: EventType = EventType.RUN_COMPLETED, wake_at: int | None = None) -> None:
    """Let runs leave their owner."""
    for one in claimed:
        author = Author(one.row.id, store.now())
        author.follow(one)
        accept(store, author.move(kind, wake_at=wake_at))


def state_of(store: Store, name: str = "default") -> QueueState:
    """Return the state of a queue that must be there."""
    (state,) = (one for one in store.stats().queues if one.settings.name == name)
    return state


class QueueingContract(Contract):
    """`SetQueue`, and `Store.claim` from queues that have settings."""

    # ---- settings ----

    def test_a_change_keeps_other_settings_and_is_recorded(self, store: Store) -> None:
        first = change(concurrency=3, fair=1)
        accept(store, first, change(concurrency=4), change("other", rate_limit=5, rate_us=SECOND))
        state = state_of(store)
        assert state.settings._replace(declared=None) == QueueRow(
            "default", concurrency=4, fair=1, changed_at=5, changes=2
        )
        assert [(one.n, one.actor, one.reason, one.change) for one in state.changes] == [
            (2, "ada", "because", '{"concurrency":[3,4]}'),
            (1, "ada", "because", '{"concurrency":[null,3],"fair":[0,1]}'),
        ]
        assert state.changes[1].commit_id == first.commit_id
        assert [one.settings.name for one in store.stats().queues] == ["default", "other"]

    def test_a_change_done_twice_is_done_once(self, store: Store) -> None:
        first, second = change(concurrency=3), change(concurrency=4)
        accept(store, first)
        accept(store, second, first)
        assert state_of(store).settings.concurrency == 4
        accept(store, change(concurrency=4))
        assert state_of(store).settings.changes == 2

    def test_a_declaration_takes_effect_when_it_is_new(self, store: Store) -> None:
        accept(store, change(declared=True, concurrency=3), change(concurrency=9))
        accept(store, change(declared=True, concurrency=3))
        assert state_of(store).settings.concurrency == 9
        accept(store, change(declared=True, concurrency=4))
        assert state_of(store).settings.concurrency == 4

    def test_settings_are_seen_by_other_handles_at_once(self, store: Store, second: Store) -> None:
        enlist(store, "w1", "w2")
        add(store, "a", "b", "c")
        assert ids(claim(second, "w2", limit=1)) == ["a"]
        accept(store, change(concurrency=2))
        assert ids(claim(second, "w2")) == ["b"]
        accept(store, change(paused=1))
        assert claim(second, "w2") == []
        accept(store, change(paused=0, concurrency=None))
        assert ids(claim(second, "w2")) == ["c"]

    # ---- limits of concurrency ----

    def test_no_more_runs_are_owned_than_the_limit_says(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        accept(store, change(concurrency=3))
        add(store, *"abcdef")
        first = claim(store, limit=2)
        assert ids(first) == ["a", "b"]
        answer = claims(store, worker_id="w2")
        assert ids(answer.taken) == ["c"]
        assert answer.held
        assert claims(store) == Claims([], held=True)
        assert state_of(store).slots == 3
        end(store, first[0], answer.taken[0])
        assert ids(claim(store)) == ["d", "e"]

    @pytest.mark.parametrize(
        "kind",
        [
            EventType.RUN_COMPLETED,
            EventType.RUN_FAILED,
            EventType.RUN_PARKED,
            EventType.RUN_PAUSED,
            EventType.RUN_RELEASED,
            EventType.RUN_WAITING,
        ],
    )
    def test_a_slot_is_free_once_its_run_is_not_owned(self, store: Store, kind: EventType) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=1))
        add(store, "a", "b")
        (first,) = claim(store)
        wake_at = store.now() + 3600 * SECOND if kind in (EventType.RUN_RELEASED, EventType.RUN_WAITING) else None
        end(store, first, kind=kind, wake_at=wake_at)
        assert ids(claim(store)) == ["b"]

    def test_a_run_that_waits_keeps_its_slot_where_the_queue_says_so(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=1, hold_while_waiting=1))
        add(store, "a", age=1)
        (first,) = claim(store)
        add(store, "b", priority=5)
        end(store, first, kind=EventType.RUN_WAITING, wake_at=store.now() + 3600 * SECOND)
        assert claims(store) == Claims([], held=True)
        accept(store, Author("a", store.now()).send())
        (again,) = claim(store)
        assert again.row.id == "a"
        assert state_of(store).slots == 1
        end(store, again)
        assert ids(claim(store)) == ["b"]

    def test_a_run_that_was_taken_over_counts_once(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        accept(store, change(concurrency=2))
        add(store, *"abcd")
        assert ids(claim(store)) == ["a", "b"]
        store.heartbeat("w1", 0)
        taken = claim(store, "w2")
        assert ids(taken) == ["a", "b"]
        assert state_of(store).slots == 2
        end(store, *taken)
        assert ids(claim(store, "w2")) == ["c", "d"]

    def test_a_run_that_is_parked_for_its_deaths_takes_no_slot(self, store: Store) -> None:
        accept(store, change(concurrency=1))
        add(store, "a", age=1)
        for n in range(4):
            enlist(store, f"w{n}")
            claim(store, f"w{n}")
            store.heartbeat(f"w{n}", 0)
        add(store, "b")
        enlist(store, "w9")
        claim(store, "w9")
        assert row_of(store, "a").status == "parked"
        claim(store, "w9")
        assert row_of(store, "b").owner == "w9"

    def test_a_limit_of_one_worker_does_not_concern_others(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        accept(store, change(concurrency_per_worker=1))
        add(store, *"abc")
        (first,) = claim(store)
        assert claim(store) == []
        (second,) = claim(store, "w2")
        assert claim(store, "w2") == []
        end(store, first)
        assert ids(claim(store, "w2")) == []
        end(store, second)
        assert ids(claim(store, "w2")) == ["c"]

    def test_a_limit_counts_what_was_owned_before_it_was_set(self, store: Store) -> None:
        enlist(store, "w1")
        add(store, *"abcd")
        first = claim(store, limit=2)
        accept(store, change(concurrency=2))
        assert claim(store) == []
        end(store, first[0])
        assert ids(claim(store)) == ["c"]

    def test_a_run_cannot_be_owned_as_it_is_created_where_claims_are_counted(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=1))
        owned, free = Author("a", store.now()).create(owner="w1"), Author("b", store.now()).create()
        other = Author("c", store.now()).create(owner="w1", queue="other")
        assert commit(store, owned, free, other) == [Counted("default"), COMMITTED, COMMITTED]
        assert store.get("a") is None
        assert commit(store, change("other", paused=1), Author("d", store.now()).create(owner="w1", queue="other")) == [
            COMMITTED,
            Counted("other"),
        ]
        accept(store, change(concurrency=None), Author("a", store.now()).create(owner="w1"))

    def test_one_run_alone_is_not_claimed_above_a_limit(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=1))
        add(store, "a", "b")
        (first,) = claim(store, only="b")
        assert claim(store, only="a") == []
        end(store, first)
        assert ids(claim(store, only="a")) == ["a"]

    # ---- pause ----

    def test_nothing_is_claimed_from_a_paused_queue_and_it_resumes_at_once(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        add(store, "a", "b", age=1)
        add(store, "other", queue="other")
        taken = claim(store, limit=1)
        accept(store, change(paused=1))
        end(store, *taken, kind=EventType.RUN_RELEASED, wake_at=store.now())
        assert ids(claim(store, queues=("default", "other"))) == ["other"]
        assert claim(store, only="b") == []
        accept(store, change(paused=0))
        assert sorted(ids(claim(store))) == ["a", "b"]

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

    # ---- rates ----

    def test_no_window_sees_more_claims_than_the_rate_says(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        window = 200_000
        accept(store, change(rate_limit=3, rate_us=window))
        add(store, *(f"run-{n}" for n in range(8)))
        times: list[int] = []
        deadline = time.monotonic() + 10
        while len(times) < 8:
            assert time.monotonic() < deadline
            for worker_id in ("w1", "w2"):
                answer = claims(store, limit=2, worker_id=worker_id)
                times += [one.append.events[0].at for one in answer.taken]
                if not answer.taken and len(times) < 8:
                    assert answer.held
                    assert answer.open_at is not None
                    assert answer.open_at <= times[len(times) - 3] + window * 1.02
                    time.sleep(max(answer.open_at - store.now(), 0) / SECOND)
        for first, fourth in zip(times, times[3:], strict=False):
            assert fourth - first >= window

    def test_a_take_over_and_a_return_count_in_the_rate(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        accept(store, change(rate_limit=2, rate_us=3600 * SECOND))
        add(store, "a")
        claim(store)
        store.heartbeat("w1", 0)
        (again,) = claim(store, "w2")
        assert state_of(store).starts == 2
        end(store, again, kind=EventType.RUN_WAITING, wake_at=store.now())
        assert claim(store, "w2") == []

    # ---- deduplication ----

    def test_one_deduplication_key_has_one_open_run(self, store: Store) -> None:
        enlist(store, "w1")
        author = Author("a", store.now())
        create = author.create(deduplication_key="k")
        accept(store, create)
        second = Author("b", store.now()).create(deduplication_key="k")
        elsewhere = Author("c", store.now()).create(deduplication_key="k", queue="other")
        assert commit(store, second, elsewhere) == [Existing(row_of(store, "a")), COMMITTED]
        assert store.get("b") is None
        assert commit(store, create) == [COMMITTED]
        accept(store, author.move(EventType.RUN_CANCELLED), second)
        assert commit(store, Author("d", store.now()).create(deduplication_key="k")) == [Existing(row_of(store, "b"))]

    def test_a_deduplication_key_is_given_once_in_a_batch(self, store: Store) -> None:
        creates = [Author(f"run-{n}", store.now()).create(deduplication_key="k", fresh=False) for n in range(4)]
        outcomes = commit(store, *creates)
        assert outcomes == [COMMITTED, *[Existing(row_of(store, "run-0"))] * 3]

    def test_a_purged_run_gives_its_deduplication_key_back(self, store: Store) -> None:
        author = Author("a", store.now())
        accept(store, author.create(deduplication_key="k"), author.move(EventType.RUN_CANCELLED), author.purge())
        accept(store, Author("b", store.now()).create(deduplication_key="k"))

    # ---- statistics ----

    def test_the_state_of_a_queue_counts_what_is_in_it(self, store: Store) -> None:
        enlist(store, "w1")
        accept(store, change(concurrency=2))
        add(store, "a", "b", "c", age=5)
        add(store, "keyed", key="k", age=8)
        add(store, "later", age=-3600)
        add(store, "far", queue="far")
        claim(store, limit=1)
        state = state_of(store)
        assert (state.due, state.later, state.running, state.slots) == (3, 1, 1, 1)
        assert state.oldest_wake_at is not None
        assert abs(store.now() - state.oldest_wake_at - 5 * SECOND) < SECOND
        assert state_of(store, "far")[1:5] == (1, 0, 0, 0)

    def test_a_worker_that_is_gone_keeps_its_slots_until_its_runs_are_taken_over(self, store: Store) -> None:
        accept(store, change(concurrency=1))
        store.register(worker("w1", store.now(), 60 * SECOND))
        add(store, "a", age=1)
        claim(store)
        add(store, "b", priority=9)
        store.heartbeat("w1", 0)
        enlist(store, "w2")
        assert ids(claim(store, "w2")) == ["a"]
        assert claim(store, "w2") == []
