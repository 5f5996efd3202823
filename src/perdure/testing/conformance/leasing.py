"""Workers: a lease is extended by the living, and its end is a fact only once it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.run import Heartbeat
from perdure.model.status import EventType
from perdure.testing.author import worker
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, enlist, running

if TYPE_CHECKING:
    from perdure.store.base import Store


def state_of(store: Store, worker_id: str) -> str | None:
    """Return the state of a worker's row."""
    return {worker.id: worker.state for worker in store.stats().workers}.get(worker_id)


class LeasingContract(Contract):
    """`Store.register`, `Store.heartbeat`, `Store.sweep`, `Store.owned`."""

    def test_a_heartbeat_extends_the_lease_from_now(self, store: Store) -> None:
        enlist(store, "w1", lease_us=SECOND)
        before = store.now()
        assert store.heartbeat("w1", 60 * SECOND).alive
        (worker,) = store.stats().workers
        assert worker.state == "live"
        assert before + 60 * SECOND <= worker.expires_at <= store.now() + 60 * SECOND

    def test_a_heartbeat_of_an_unknown_worker_makes_no_row(self, store: Store) -> None:
        assert store.heartbeat("nobody", SECOND) == Heartbeat(alive=False, owned={})
        assert store.stats().workers == ()

    def test_a_heartbeat_does_not_raise_the_dead(self, store: Store) -> None:
        running(store, owner="w1")
        store.register(worker("w1", store.now() - 9 * SECOND, SECOND))
        assert store.sweep() == ["w1"]
        assert not store.heartbeat("w1", 60 * SECOND).alive
        assert state_of(store, "w1") == "dead"

    def test_registering_again_does_not_raise_the_dead(self, store: Store) -> None:
        running(store, owner="w1")
        store.register(worker("w1", store.now() - 9 * SECOND, SECOND))
        store.sweep()
        enlist(store, "w1")
        assert not store.heartbeat("w1", 60 * SECOND).alive

    def test_a_lease_that_has_ended_counts_until_somebody_records_its_end(self, store: Store) -> None:
        store.register(worker("w1", store.now() - 9 * SECOND, SECOND))
        assert store.heartbeat("w1", 60 * SECOND).alive
        assert store.sweep() == []

    def test_a_heartbeat_says_what_the_worker_owns(self, store: Store) -> None:
        enlist(store, "w1", "w2")
        author = running(store, "run-1", owner="w1")
        running(store, "run-2", owner="w2")
        running(store, "run-3", owner="w1")
        accept(store, author.send())
        assert store.heartbeat("w1", SECOND).owned == {"run-1": (1, 1), "run-3": (1, 0)}
        assert store.owned("w1") == {"run-1": (1, 1), "run-3": (1, 0)}
        accept(store, author.move(EventType.RUN_WAITING, inbox_seen=1))
        assert store.owned("w1") == {"run-3": (1, 0)}
        assert store.owned("nobody") == {}

    def test_a_heartbeat_shows_the_new_epoch_of_a_run_claimed_again(self, store: Store) -> None:
        enlist(store, "w1")
        author = running(store, owner="w1")
        accept(store, author.move(EventType.RUN_RELEASED, wake_at=store.now()))
        claim(store, "w1")
        assert store.heartbeat("w1", SECOND).owned == {"run-1": (2, 0)}

    def test_a_lease_of_zero_ends_the_life_of_the_worker(self, store: Store) -> None:
        enlist(store, "w1")
        running(store, owner="w1")
        assert store.heartbeat("w1", 0) == Heartbeat(alive=False, owned={"run-1": (1, 0)})
        assert state_of(store, "w1") == "left"
        assert not store.heartbeat("w1", 60 * SECOND).alive

    def test_a_sweep_marks_only_workers_whose_lease_has_ended(self, store: Store) -> None:
        now = store.now()
        for worker_id, began in (("w1", now - 9 * SECOND), ("w2", now), ("w3", now - 5 * SECOND)):
            running(store, f"run-of-{worker_id}", owner=worker_id)
            store.register(worker(worker_id, began, 4 * SECOND))
        assert store.sweep() == ["w1", "w3"]
        assert store.sweep() == []
        assert [state_of(store, name) for name in ("w1", "w2", "w3")] == ["dead", "live", "dead"]

    def test_a_worker_that_owns_something_is_remembered(self, store: Store) -> None:
        enlist(store, "w1", "w2", "w3")
        author = running(store, owner="w1")
        store.heartbeat("w1", 0)
        store.heartbeat("w2", 0)
        store.sweep()
        assert [state_of(store, name) for name in ("w1", "w2", "w3")] == ["left", None, "live"]
        accept(store, author.completed())
        store.sweep()
        assert state_of(store, "w1") is None
