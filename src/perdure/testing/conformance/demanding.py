"""What code runs need, and who has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.status import EventType
from perdure.testing.author import Author, worker
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, enlist

if TYPE_CHECKING:
    from perdure.store.base import Store


def add(
    store: Store, run_id: str, version_id: int, *, age: int = 0, queue: str = "default", key: str | None = None
) -> Author:
    """Record a run that is bound to a version, due since ``age`` seconds."""
    author = Author(run_id, store.now() - age * SECOND)
    accept(store, author.create(version_id=version_id, queue=queue, partition_key=key, workflow="order"))
    return author


class DemandingContract(Contract):
    """`Catalog.demand`."""

    def test_what_due_runs_need_is_known_with_since_when(self, store: Store) -> None:
        assert store.catalog.demand(("default",), store.now()).due == {}
        add(store, "a", 0, age=2)
        add(store, "b", 7, age=5)
        add(store, "c", 7, age=9, key="ada")
        add(store, "d", 8, key="ada", age=3)
        add(store, "far", 9, queue="far")
        future = Author("future", store.now())
        accept(store, future.create(version_id=10, wake_at=store.now() + 3600 * SECOND))
        now = store.now()
        found = store.catalog.demand(("default",), now)
        due = found.due
        assert found.later.keys() == {"10 order"}
        assert found.later["10 order"] > now + 3500 * SECOND
        assert due.keys() == {"0 order", "7 order", "8 order"}
        assert now - 10 * SECOND < due["7 order"] < now - 8 * SECOND
        assert store.catalog.demand(("default", "far"), now).due.keys() == {*due, "9 order"}
        assert store.catalog.demand(("nobody's",), now).due == {}

    def test_a_run_whose_worker_is_gone_is_in_need(self, store: Store) -> None:
        add(store, "a", 7)
        enlist(store, "w1")
        claim(store, codes=("7 order",))
        assert store.catalog.demand(("default",), store.now()).due == {}
        store.heartbeat("w1", 0)
        assert store.catalog.demand(("default",), store.now()).due.keys() == {"7 order"}

    def test_what_is_parked_for_its_code_is_known(self, store: Store) -> None:
        for run_id, detail in (("a", "version: gone"), ("b", "poison: 3 workers died")):
            author = add(store, run_id, 7 if run_id == "a" else 8)
            accept(store, author.claimed("w1"))
            accept(store, author.move(EventType.RUN_PARKED, detail=detail))
        assert store.catalog.demand(("default",), store.now()).parked == {"7 order"}
        assert store.catalog.demand(("far",), store.now()).parked == set()

    def test_who_carries_what_is_known(self, store: Store) -> None:
        now = store.now()
        store.register(worker("deployed", now)._replace(versions="[3, 4]"))
        store.register(worker("host", now)._replace(versions="[4, 5]", parent="deployed"))
        store.register(worker("gone", now)._replace(versions="[6]"))
        store.heartbeat("gone", 0)
        assert store.catalog.demand(("default",), now).carried == {3: True, 4: True, 5: False}
