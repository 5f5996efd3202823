"""Queues: settings, limits that hold in claims, rates, pauses, deduplication."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from perdure.model.claim import ClaimRequest, Claims, count_deaths, hand_over
from perdure.model.queue import QueueRow
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Counted, Existing
from perdure.store.slots import STRANDED_US
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of
from perdure.testing.conformance.filling import add, change, claims, end, ids, state_of

if TYPE_CHECKING:
    from perdure.model.claim import Claimed
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.store.base import Store


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

    def test_a_run_that_nobody_takes_over_does_not_keep_its_slot_for_ever(self, store: Store) -> None:
        accept(store, change(concurrency=1))
        now = store.now()
        author = Author("foreign", now)
        accept(store, author.create(workflow="other"))
        enlist(store, "w1")
        claim(store, "w1", workflows=("other",))
        add(store, "mine")
        enlist(store, "w2")
        assert claim(store, "w2") == []
        store.register(worker("w0", now - STRANDED_US - 9 * SECOND, 8 * SECOND))
        accept(store, change("far", concurrency=1))
        lost = Author("lost", now)
        accept(store, lost.create(workflow="other", queue="far", owner=None), lost.claimed("w0"))
        accept(store, change("far", concurrency=1, fair=1))
        add(store, "next", queue="far")
        store.sweep()

        def judge(row: RunRow, recent: tuple[Event, ...], at: int) -> Claimed:
            return hand_over(row, recent, at, 77) if row.workflow == "other" else claims_for("w2")(row, recent, at)

        request = ClaimRequest("w2", ("default", "far"), ("0 order",), 5)
        answer = store.claim(request, judge)
        assert answer is not None
        assert [(one.row.id, one.returned) for one in answer.taken] == [("lost", True)]
        row = row_of(store, "lost")
        assert (row.status, row.owner, row.epoch) == ("pending", None, 1)
        assert count_deaths(store.load("lost")) == 1
        assert ids(claim(store, "w2", queues=("far",))) == ["next"]
        assert row_of(store, "foreign").owner == "w1"

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
