"""Handles: what several users of one database see of each other, and what outlives them."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from perdure.errors import UsageError
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED, Conflict, Existing
from perdure.testing.author import Author
from perdure.testing.conformance.contract import Contract, accept, claim, commit, enlist, row_of, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.base import Store

HINT_S = 5.0
"""How long a hint may be under way."""
CLOCKS_US = 10_000
"""How far the clocks of two handles may be apart: what it takes an answer to come."""


class SharingContract(Contract):
    """Opening, closing, threads, other processes."""

    def test_what_was_committed_is_there_after_closing_and_opening(self, store: Store) -> None:
        author = running(store)
        accept(store, author.step(), author.send())
        before = store.get("run-1"), store.load("run-1"), store.inbox("run-1"), store.list(RunFilter())
        store.close()
        store.open()
        assert (store.get("run-1"), store.load("run-1"), store.inbox("run-1"), store.list(RunFilter())) == before
        accept(store, author.step())

    def test_a_store_may_be_closed_twice_and_before_it_was_opened(self, make: Callable[[], Store]) -> None:
        store = make()
        store.close()
        store.open()
        store.close()
        store.close()

    def test_opening_an_open_store_changes_nothing(self, store: Store) -> None:
        author = running(store)
        store.open()
        accept(store, author.step())

    def test_a_store_that_is_not_open_says_so(self, make: Callable[[], Store]) -> None:
        store = make()
        for call in (
            lambda: store.commit([]),
            lambda: store.get("x"),
            lambda: store.load("x"),
            lambda: store.inbox("x"),
            lambda: store.list(RunFilter()),
            store.stats,
            store.sweep,
            store.change_count,
            lambda: store.owned("w1"),
            lambda: store.heartbeat("w1", 1),
            lambda: claim(store),
        ):
            with pytest.raises(UsageError):
                call()

    def test_the_capabilities_are_known_before_opening(self, make: Callable[[], Store]) -> None:
        capabilities = make().capabilities
        assert capabilities.name
        assert capabilities.durability

    def test_another_handle_sees_what_was_committed(self, store: Store, second: Store) -> None:
        author = running(store)
        accept(store, author.step(), author.send())
        assert second.get("run-1") == store.get("run-1")
        assert second.load("run-1") == store.load("run-1")
        assert second.inbox("run-1") == store.inbox("run-1")

    def test_two_handles_never_both_get_a_place(self, store: Store, second: Store) -> None:
        author = running(store)
        for _ in range(10):
            rival = author.stale()
            accept(store, author.step())
            assert commit(second, rival.step())[0] == Conflict(author.tail.seq)
            rival = author.stale()
            accept(second, author.step())
            assert commit(store, rival.step())[0] == Conflict(author.tail.seq)

    def test_two_handles_never_both_create_an_id(self, store: Store, second: Store) -> None:
        accept(store, Author("run-1", store.now()).create(fresh=False))
        for fresh in (True, False):
            create = Author("run-1", second.now()).create(fresh=fresh)
            assert commit(second, create) == [Existing(row_of(store, "run-1"))]

    def test_two_handles_never_both_claim_a_run(self, store: Store, second: Store) -> None:
        accept(store, *(Author(f"run-{n}", store.now()).create() for n in range(60)))
        enlist(store, "w1", "w2")
        taken: list[str] = []

        def work(handle: Store, worker_id: str) -> None:
            while claimed := claim(handle, worker_id, limit=3):
                taken.extend(one.row.id for one in claimed)

        threads = [threading.Thread(target=work, args=pair) for pair in ((store, "w1"), (second, "w2"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == len(set(taken)) == 60

    def test_a_purge_by_another_handle_closes_the_log(self, store: Store, second: Store) -> None:
        author = running(store)
        stale = author.stale()
        accept(store, author.step(), author.completed())
        accept(second, author.purge())
        assert commit(store, stale.step(), author.step()) == [Conflict(None), Conflict(None)]

    def test_the_change_count_moves_with_a_commit_of_another_handle(self, store: Store, second: Store) -> None:
        before = second.change_count()
        assert second.change_count() == before
        author = running(store)
        deadline = time.monotonic() + HINT_S
        while second.change_count() == before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert second.change_count() != before
        time.sleep(0.1)
        before = second.change_count()
        accept(second, author.step(), author.completed())
        assert second.change_count() == before

    def test_handles_share_one_clock(self, store: Store, second: Store) -> None:
        times = []
        for _ in range(200):
            times += [store.now(), second.now()]
        assert all(later - earlier > -CLOCKS_US for earlier, later in pairwise(times))

    def test_a_commit_that_may_not_wait_commits_or_says_so(self, store: Store) -> None:
        author = running(store)
        assert store.commit([author.step()], block=False) in ([COMMITTED], None)

    def test_many_threads_may_use_a_store_at_once(self, store: Store) -> None:
        failures: list[BaseException] = []

        def work(n: int) -> None:
            try:
                author = Author(f"run-{n}", store.now())
                accept(store, author.create(), author.claimed(f"w{n}"))
                for k in range(20):
                    accept(store, author.step(str(k).encode()))
                    assert [event.payload for event in store.load(f"run-{n}", after=-1)] == [str(k).encode()]
                    store.stats()
                    store.list(RunFilter(limit=3))
            except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [len(store.load(f"run-{n}")) for n in range(6)] == [22] * 6
