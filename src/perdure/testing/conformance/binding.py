"""Runs and their versions: who may take which, and when a run is bound to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.model.write import COMMITTED, Existing, Outdated
from perdure.testing.author import Author
from perdure.testing.conformance.claiming import ids
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of
from perdure.testing.conformance.reading import listed

if TYPE_CHECKING:
    from perdure.store.base import Store


def add(store: Store, run_id: str, version_id: int, *, priority: int = 0, key: str | None = None, age: int = 0) -> None:
    """Record a run that is due, bound to a version."""
    create = Author(run_id, store.now() - age * SECOND).create(
        version=f"{version_id}.0.0", version_id=version_id, priority=priority, partition_key=key
    )
    accept(store, create)


class BindingContract(Contract):
    """What `run.version_id` means to claims and creates."""

    def test_a_worker_takes_only_runs_of_versions_it_carries(self, store: Store) -> None:
        for version_id in (0, 1, 2, 12):
            add(store, f"v{version_id}", version_id, age=12 - version_id)
        enlist(store, "w1")
        assert ids(claim(store, codes=("2 order",))) == ["v2"]
        assert ids(claim(store, codes=("2 order", "1 refund"))) == []
        assert ids(claim(store, codes=("0 order", "1 order"))) == ["v0", "v1"]
        assert ids(claim(store, codes=("12 order",), only="v12")) == ["v12"]

    def test_a_listing_by_version_takes_those_that_are_bound_to_it(self, store: Store) -> None:
        for version_id in (0, 1, 2, 12):
            add(store, f"v{version_id}", version_id, age=version_id)
        assert listed(store, version_ids=(1, 12)) == ["v1", "v12"]
        assert listed(store, version_ids=(2,), statuses=("pending",), workflow="order") == ["v2"]
        assert listed(store, version_ids=(2,), statuses=("running",)) == []
        assert listed(store, version_ids=(3,)) == []

    def test_one_run_alone_of_another_version_is_not_taken(self, store: Store) -> None:
        add(store, "v1", 1)
        enlist(store, "w1")
        assert claim(store, codes=("0 order", "2 order"), only="v1") == []

    def test_priorities_hold_across_versions(self, store: Store) -> None:
        for run_id, version_id, priority in (("a", 1, 0), ("b", 2, 5), ("c", 1, 3), ("d", 2, 3)):
            add(store, run_id, version_id, priority=priority, age=9)
        enlist(store, "w1")
        assert ids(claim(store, codes=("1 order", "2 order"))) == ["b", "c", "d", "a"]

    def test_runs_of_other_versions_hide_none(self, store: Store) -> None:
        for n in range(30):
            add(store, f"old-{n}", 1, priority=9, age=30)
            add(store, f"old-{n}-of-ada", 1, priority=9, key="ada", age=30)
        add(store, "new", 2)
        add(store, "new-of-ada", 2, key="ada")
        enlist(store, "w1")
        assert sorted(ids(claim(store, codes=("2 order",), limit=2))) == ["new", "new-of-ada"]

    def test_a_run_keeps_its_version_when_it_is_taken_over(self, store: Store) -> None:
        add(store, "a", 1)
        enlist(store, "w1", "w2", lease_us=SECOND)
        assert ids(claim(store, codes=("1 order",))) == ["a"]
        store.heartbeat("w1", 0)
        assert claim(store, "w2", codes=("0 order", "2 order")) == []
        assert ids(claim(store, "w2", codes=("1 order",))) == ["a"]
        assert row_of(store, "a").version_id == 1

    def test_the_first_claim_binds_a_run_that_is_bound_to_none(self, store: Store) -> None:
        accept(store, Author("a", store.now()).create(version="0.0.0"))
        enlist(store, "w1")
        (claimed,) = claim(store, binding=(7, "1.2.0"))
        assert (claimed.row.version_id, claimed.row.workflow_version) == (7, "1.2.0")
        row = row_of(store, "a")
        assert (row.version_id, row.workflow_version, row.code) == (7, "1.2.0", "7 order")
        assert msgspec.json.decode(store.load("a")[-1].detail or b"")["version"] == "1.2.0"

    def test_a_run_that_is_bound_is_not_bound_by_a_claim(self, store: Store) -> None:
        add(store, "a", 3)
        enlist(store, "w1")
        claim(store, codes=("3 order",), binding=(7, "1.2.0"))
        assert (row_of(store, "a").version_id, row_of(store, "a").workflow_version) == (3, "3.0.0")

    def test_a_run_parked_by_its_claim_is_not_bound(self, store: Store) -> None:
        accept(store, Author("a", store.now()).create())
        for n in range(4):
            enlist(store, f"w{n}")
            claim(store, f"w{n}", binding=None)
            store.heartbeat(f"w{n}", 0)
        assert row_of(store, "a").status == "parked"
        assert row_of(store, "a").version_id == 0

    def test_a_create_whose_version_was_chosen_by_old_facts_is_refused_alone(self, store: Store) -> None:
        now = store.now()
        old = Author("old", now).create(version_id=1, version_count=5)
        good = Author("good", now).create(version_id=1, version_count=0)
        unbound = Author("unbound", now).create()
        assert commit(store, old, good, unbound) == [Outdated(0), COMMITTED, COMMITTED]
        assert store.get("old") is None
        assert store.load("old") == []

    def test_a_repeated_start_finds_its_run_whatever_has_changed(self, store: Store) -> None:
        now = store.now()
        accept(store, Author("a", now).create(version_id=1, version_count=0))
        (outcome,) = commit(store, Author("a", now).create(fresh=False, version_id=2, version_count=9))
        assert isinstance(outcome, Existing)
        assert outcome.row == row_of(store, "a")
