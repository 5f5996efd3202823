"""Upgrades: how a run that nobody owns comes to another version, and how that is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Conflict, Failed, Outdated
from perdure.store.catalog.plans import ItemRow, PlanRow
from perdure.testing.author import Author
from perdure.testing.conformance.claiming import ids
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of

if TYPE_CHECKING:
    from perdure.store.base import Store


def bound(store: Store, run_id: str, version_id: int = 1, *, key: str | None = None) -> Author:
    """Record a run that is due, bound to a version."""
    author = Author(run_id, store.now())
    accept(store, author.create(version=f"{version_id}.0.0", version_id=version_id, partition_key=key))
    return author


class UpgradingContract(Contract):
    """What `Upgrade` is to a store, and what is kept of plans."""

    def test_an_upgrade_binds_the_run_anew_and_is_recorded(self, store: Store) -> None:
        author = bound(store, "a", key="ada")
        accept(store, author.upgraded(1, 2, plan_id="p1"))
        row = row_of(store, "a")
        assert (row.version_id, row.workflow_version, row.code, row.epoch) == (2, "2.0.0", "2 order", 1)
        last = store.load("a")[-1]
        assert (last.type, last.epoch, last.state) == (EventType.RUN_UPGRADED, 1, "pending>pending")
        (record,) = store.catalog.upgrades_of("a")
        assert record[:8] == ("a", 1, 1, 2, "p1", 0, "ada", "double charge")
        assert store.catalog.upgrades_by("p1") == [record]
        enlist(store, "w1")
        assert ids(claim(store, codes=("1 order",))) == []
        assert ids(claim(store, codes=("2 order",))) == ["a"]

    def test_a_run_bound_to_another_version_than_believed_is_left_alone(self, store: Store) -> None:
        author = bound(store, "a", 3)
        before = row_of(store, "a"), store.load("a")
        assert commit(store, author.upgraded(1, 2)) == [Conflict(1)]
        assert (row_of(store, "a"), store.load("a")) == before
        assert store.catalog.upgrades_of("a") == []

    def test_a_log_that_moved_on_refuses_the_upgrade(self, store: Store) -> None:
        author = bound(store, "a")
        late = author.stale()
        enlist(store, "w1")
        (claimed,) = claim(store, codes=("1 order",))
        assert commit(store, late.upgraded(1, 2)) == [Conflict(2)]
        author.follow(claimed)
        assert commit(store, author.step()) == [COMMITTED]
        assert row_of(store, "a").version_id == 1

    def test_whoever_owned_the_run_is_refused_after_it(self, store: Store) -> None:
        author = bound(store, "a")
        enlist(store, "w1", lease_us=SECOND)
        author.follow(claim(store, codes=("1 order",))[0])
        owner = author.stale()
        accept(store, author.upgraded(1, 2))
        assert commit(store, owner.step()) == [Conflict(3)]
        assert commit(store, owner.completed()) == [Conflict(3)]
        row = row_of(store, "a")
        assert (row.status, row.owner, row.epoch) == ("pending", None, 2)
        assert store.owned("w1") == {}

    def test_the_same_upgrade_again_changes_nothing(self, store: Store) -> None:
        author = bound(store, "a")
        upgrade = author.upgraded(1, 2)
        accept(store, upgrade)
        accept(store, upgrade)
        accept(store, author.upgraded(2, 1))
        assert commit(store, upgrade) == [COMMITTED]
        assert row_of(store, "a").version_id == 1
        assert [row.to_version for row in store.catalog.upgrades_of("a")] == [2, 1]

    def test_a_version_chosen_by_old_facts_is_refused(self, store: Store) -> None:
        author = bound(store, "a")
        assert commit(store, author.upgraded(1, 2, version_count=5)) == [Outdated(0)]
        assert row_of(store, "a").version_id == 1
        assert len(store.load("a")) == 1

    def test_neighbours_in_a_batch_keep_their_order(self, store: Store) -> None:
        one, two = bound(store, "a"), bound(store, "b")
        new = Author("c", store.now())
        stale = two.stale()
        batch = (
            new.create(version_id=1), one.upgraded(1, 2), new.upgraded(1, 2), one.claimed("w9"), two.upgraded(7, 2),
            stale.claimed("w9"), one.step(),
        )  # fmt: skip
        assert commit(store, *batch) == [COMMITTED, COMMITTED, COMMITTED, COMMITTED, Conflict(1), COMMITTED, COMMITTED]
        assert [row_of(store, run_id).version_id for run_id in ("a", "b", "c")] == [2, 1, 2]

    def test_an_upgrade_that_cannot_be_stored_leaves_nothing(self, store: Store) -> None:
        author = bound(store, "a")
        upgrade = author.upgraded(1, 2)
        good = bound(store, "b").upgraded(1, 2)
        refused, done = commit(store, upgrade._replace(reason="half a \ud800"), good)
        assert isinstance(refused, Failed)
        assert done is COMMITTED
        assert (len(store.load("a")), row_of(store, "a").version_id) == (1, 1)
        assert store.catalog.upgrades_of("a") == []

    def test_a_plan_is_kept_with_its_runs_in_order(self, store: Store) -> None:
        plan = PlanRow("p1", "order", 2, "2.0.0", '{"ids": ["b", "a"]}', "ada", store.now())
        items = [ItemRow("p1", n, run_id, 1, 3, 9, "{}") for n, run_id in enumerate(("b", "a"))]
        store.catalog.add_plan(plan, items)
        assert store.catalog.plan("p1") == (plan, items)
        assert store.catalog.plan("p2") is None
        assert store.catalog.upgrades_by("p1") == []
