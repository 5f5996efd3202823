"""Claims: who may take which run, and in which order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from perdure.model.claim import TAIL_EVENTS, ClaimRequest
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Conflict
from perdure.testing.author import Author, worker
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of, running

if TYPE_CHECKING:
    from perdure.model.claim import Claimed
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.store.base import Store


def ids(claimed: list[Claimed]) -> list[str]:
    """Return the ids of the claimed runs."""
    return [one.row.id for one in claimed]


class ClaimingContract(Contract):
    """`Store.claim`."""

    def test_a_claim_is_recorded_in_the_log_and_the_row(self, store: Store, author: Author) -> None:
        create = author.create()
        accept(store, create)
        enlist(store, "w1")
        (claimed,) = claim(store)
        assert claimed.row == create.row
        assert claimed.recent == create.events
        assert store.load("run-1") == [*create.events, *claimed.append.events]
        row = row_of(store, "run-1")
        assert (row.status, row.owner, row.wake_at, row.epoch) == ("running", "w1", None, 1)
        author.follow(claimed)
        accept(store, author.step(), author.completed())

    def test_a_claimed_run_is_not_claimed_again(self, store: Store, author: Author) -> None:
        accept(store, author.create())
        enlist(store, "w1", "w2")
        assert ids(claim(store, "w1")) == ["run-1"]
        assert claim(store, "w2") == []
        assert claim(store, "w1") == []

    def test_only_what_is_due_is_claimed(self, store: Store) -> None:
        now = store.now()
        accept(
            store,
            Author("past", now).create(wake_at=now - SECOND),
            Author("future", now).create(wake_at=now + 3600 * SECOND),
        )
        enlist(store, "w1")
        assert ids(claim(store)) == ["past"]

    @pytest.mark.parametrize("kind", [EventType.RUN_PARKED, EventType.RUN_PAUSED, EventType.RUN_COMPLETED])
    def test_what_does_not_wait_for_a_worker_is_not_claimed(self, store: Store, kind: EventType) -> None:
        accept(store, running(store).move(kind))
        enlist(store, "w2")
        assert claim(store, "w2") == []

    def test_a_waiting_run_is_claimed_when_its_time_has_come(self, store: Store) -> None:
        author = running(store)
        accept(store, author.move(EventType.RUN_WAITING, wake_at=store.now()))
        enlist(store, "w2")
        (claimed,) = claim(store, "w2")
        assert claimed.row.status == "waiting"
        assert row_of(store, "run-1").epoch == 2

    def test_the_highest_priority_comes_first_then_what_is_longest_due(self, store: Store) -> None:
        now = store.now()
        for run_id, priority, age in (("a", 0, 9), ("b", 5, 1), ("c", 5, 3), ("d", -1, 99), ("e", 5, 2), ("f", 0, 10)):
            accept(store, Author(run_id, now).create(priority=priority, wake_at=now - age * SECOND))
        enlist(store, "w1")
        assert ids(claim(store, limit=2)) == ["c", "e"]
        assert ids(claim(store, limit=10)) == ["b", "f", "a", "d"]

    def test_priorities_hold_across_the_workflows_of_a_queue(self, store: Store) -> None:
        now = store.now()
        for run_id, workflow, priority in (("a", "x", 1), ("b", "y", 3), ("c", "y", 2), ("d", "x", 4)):
            accept(store, Author(run_id, now).create(workflow=workflow, priority=priority))
        enlist(store, "w1")
        assert ids(claim(store, workflows=("x", "y"), limit=3)) == ["d", "b", "c"]

    def test_each_queue_has_its_share_first_and_what_is_left_goes_in_the_order_of_the_queues(
        self, store: Store
    ) -> None:
        now = store.now()
        for n in range(6):
            for queue in ("q1", "q2", "q3"):
                accept(store, Author(f"{queue}-{n}", now).create(queue=queue, priority=9 if queue == "q1" else 0))
        accept(store, Author("q4-0", now).create(queue="q4"))
        enlist(store, "w1")
        queues = ("q4", "q2", "q3", "q1")
        taken = claim(store, queues=queues, limit=10, shares=(3, 4, 2, 1))
        assert Counter(one.row.queue for one in taken) == {"q4": 1, "q2": 6, "q3": 2, "q1": 1}
        assert ids(claim(store, queues=("q3", "q1"), limit=2)) == ["q3-2", "q3-3"]
        assert ids(claim(store, queues=("q3", "q1"), limit=1, shares=(0, 1))) == ["q1-1"]

    def test_of_equals_the_one_created_first_comes_first(self, store: Store) -> None:
        now = store.now()
        order = ["m", "z", "a", "k"]
        accept(store, *(Author(run_id, now).create() for run_id in order))
        enlist(store, "w1")
        assert ids(claim(store)) == order

    def test_no_more_than_the_limit_is_claimed(self, store: Store) -> None:
        accept(store, *(Author(f"run-{n}", store.now()).create() for n in range(9)))
        enlist(store, "w1")
        assert [len(claim(store, limit=limit)) for limit in (0, 4, 4, 4)] == [0, 4, 4, 1]

    def test_only_runs_of_the_given_queues_and_workflows_are_claimed(self, store: Store) -> None:
        now = store.now()
        for queue in ("q1", "q2"):
            for workflow in ("x", "y"):
                accept(store, Author(f"{queue}{workflow}", now).create(queue=queue, workflow=workflow))
        enlist(store, "w1")
        assert ids(claim(store, queues=("q1",), workflows=("y",))) == ["q1y"]
        assert claim(store, queues=(), workflows=("x",)) == []
        assert claim(store, queues=("q1",), workflows=()) == []
        assert claim(store, queues=("nope",), workflows=("x",)) == []

    def test_runs_that_the_worker_cannot_run_never_hide_ones_it_can(self, store: Store) -> None:
        now = store.now()
        foreign = [
            Author(f"foreign-{n}", now).create(workflow="other", priority=9, wake_at=now - SECOND) for n in range(300)
        ]
        accept(store, *foreign, Author("mine", now).create())
        enlist(store, "w1")
        assert ids(claim(store, limit=1)) == ["mine"]

    def test_a_worker_that_is_not_registered_claims_nothing(self, store: Store, author: Author) -> None:
        accept(store, author.create())
        assert claim(store, "nobody") == []

    def test_a_worker_marked_dead_claims_nothing(self, store: Store, author: Author) -> None:
        running(store, "run-0", owner="w1")
        store.register(worker("w1", store.now() - 9 * SECOND, SECOND))
        accept(store, author.create())
        assert store.sweep() == ["w1"]
        assert claim(store, "w1") == []

    def test_runs_of_a_dead_worker_are_taken_over(self, store: Store) -> None:
        author = running(store, owner="w1")
        store.register(worker("w1", store.now() - 9 * SECOND, SECOND))
        enlist(store, "w2")
        assert claim(store, "w2") == []
        store.sweep()
        assert claim(store, "w2", take_over=False) == []
        (claimed,) = claim(store, "w2")
        assert claimed.row.owner == "w1"
        assert row_of(store, "run-1").owner == "w2"
        assert commit(store, author.step()) == [Conflict(3)]

    def test_runs_of_a_worker_that_left_are_taken_over(self, store: Store) -> None:
        running(store, owner="w1")
        enlist(store, "w1", "w2")
        store.heartbeat("w1", 0)
        assert ids(claim(store, "w2")) == ["run-1"]

    def test_runs_of_a_worker_without_a_row_are_taken_over_after_a_sweep(self, store: Store) -> None:
        running(store, owner="ghost")
        enlist(store, "w2")
        assert "ghost" in store.sweep()
        assert ids(claim(store, "w2")) == ["run-1"]

    def test_a_take_over_looks_at_queue_workflow_priority_and_limit_too(self, store: Store) -> None:
        now = store.now()
        for run_id, queue, priority in (("a", "q1", 0), ("b", "q1", 2), ("c", "q2", 9), ("d", "q1", 1)):
            author = Author(run_id, now)
            accept(store, author.create(queue=queue, priority=priority), author.claimed("w1"))
        accept(store, Author("e", now).create(queue="q1", priority=1))
        enlist(store, "w1", "w2")
        store.heartbeat("w1", 0)
        assert ids(claim(store, "w2", queues=("q1",), limit=3)) == ["b", "d", "e"]

    def test_one_run_alone_can_be_claimed_whatever_its_queue(self, store: Store) -> None:
        now = store.now()
        for run_id, queue, workflow, wake_at in (
            ("wanted", "far", "order", now),
            ("other", "default", "order", now),
            ("later", "default", "order", now + 3600 * SECOND),
            ("foreign", "default", "invoice", now),
        ):
            accept(store, Author(run_id, now).create(queue=queue, workflow=workflow, wake_at=wake_at, priority=0))
        enlist(store, "w1", "w2")
        for run_id in ("later", "foreign", "unknown"):
            assert claim(store, only=run_id) == []
        assert ids(claim(store, only="wanted")) == ["wanted"]
        assert claim(store, "w2", only="wanted") == []
        store.heartbeat("w1", 0)
        assert claim(store, "w2", only="wanted", take_over=False) == []
        assert ids(claim(store, "w2", only="wanted")) == ["wanted"]
        assert ids(claim(store, "w2")) == ["other"]

    def test_one_run_alone_of_an_unknown_worker_is_taken_over_after_a_sweep(self, store: Store) -> None:
        running(store, owner="ghost")
        enlist(store, "w2")
        assert claim(store, "w2", only="run-1") == []
        store.sweep()
        assert ids(claim(store, "w2", only="run-1")) == ["run-1"]

    def test_a_claim_shows_the_end_of_the_log_in_order(self, store: Store) -> None:
        author = running(store)
        accept(store, author.step(events=TAIL_EVENTS + 5), author.move(EventType.RUN_RELEASED, wake_at=store.now()))
        log = store.load("run-1")
        enlist(store, "w2")
        (claimed,) = claim(store, "w2")
        assert list(claimed.recent) == log[-TAIL_EVENTS:]

    def test_a_run_that_kills_its_workers_is_parked(self, store: Store) -> None:
        running(store, owner="w1")
        parked = []
        for n in range(2, 5):
            store.register(worker(f"w{n - 1}", store.now(), SECOND))
            store.heartbeat(f"w{n - 1}", 0)
            enlist(store, f"w{n}")
            parked += [claimed.parked for claimed in claim(store, f"w{n}")]
        assert parked == [False, False, True]
        row = row_of(store, "run-1")
        assert (row.status, row.owner, row.wake_at) == ("parked", None, None)
        assert row.detail is not None

    def test_a_decision_that_fails_claims_nothing(self, store: Store) -> None:
        accept(store, *(Author(f"run-{n}", store.now()).create() for n in range(3)))
        enlist(store, "w1")

        def fail(row: RunRow, recent: tuple[Event, ...], now: int) -> Claimed:
            raise LookupError(row.id, recent, now)

        with pytest.raises(LookupError):
            store.claim(ClaimRequest("w1", ("default",), ("0 order",), 3), fail)
        assert len(claim(store)) == 3

    def test_the_time_of_a_claim_is_the_clock_of_the_store(self, store: Store, author: Author) -> None:
        accept(store, author.create())
        enlist(store, "w1")
        before = store.now()
        (claimed,) = claim(store)
        assert before <= claimed.append.events[0].at <= store.now()

    def test_a_claim_and_an_append_of_the_same_place_exclude_each_other(self, store: Store, author: Author) -> None:
        accept(store, author.create())
        outside = author.stale().move(EventType.RUN_TERMINATED)
        enlist(store, "w1")
        claim(store)
        assert commit(store, outside) == [Conflict(2)]
        assert commit(store, running(store, "run-2").step()) == [COMMITTED]
