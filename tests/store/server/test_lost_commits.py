"""A COMMIT whose answer is lost: what became of it is found out by our own ids, never guessed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED, Conflict, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author, claims_for, worker
from tests.servers.fixtures import Database
from tests.servers.proxy import Proxy, Where

LOG = r"\bevent\b"
"""What is found in each transaction that writes to a log."""
AFTER: list[Where] = ["after", "mid-reply"]


@pytest.fixture
def store(database: Database, proxy: Proxy) -> Iterator[Store]:
    """Give a store whose connections go through the proxy."""
    store = open_store(database.server.url(database.name, port=proxy.port), StoreOptions())
    store.open()
    yield store
    store.close()


@pytest.fixture
def author(store: Store) -> Author:
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    return author


def seqs(store: Store, run_id: str = "run-1") -> list[int]:
    return [event.seq for event in store.load(run_id)]


@pytest.mark.parametrize("where", AFTER)
def test_a_lone_append_that_was_committed_is_confirmed(
    store: Store, proxy: Proxy, author: Author, where: Where
) -> None:
    proxy.on_commit(where, touching=LOG)
    assert store.commit([author.step()]) == [COMMITTED]
    assert proxy.cuts == 1
    assert seqs(store) == [1, 2, 3]


@pytest.mark.parametrize("where", AFTER)
def test_a_batch_that_was_committed_is_confirmed(store: Store, proxy: Proxy, author: Author, where: Where) -> None:
    other = Author("run-2", store.now())
    proxy.on_commit(where, touching=LOG)
    batch: list[Write] = [author.step(), other.create(tags=(("a", "b"),)), author.send(), author.completed()]
    assert store.commit(batch) == [COMMITTED] * 4
    assert proxy.cuts == 1
    assert seqs(store) == [1, 2, 3, 4]
    assert seqs(store, "run-2") == [1]


def test_what_was_not_committed_is_said_to_be_unavailable_and_can_be_repeated(
    store: Store, proxy: Proxy, author: Author
) -> None:
    batches: list[list[Write]] = [[author.step()], [author.step(), Author("run-2", store.now()).create()]]
    for batch in batches:
        proxy.on_commit("before", touching=LOG)
        with pytest.raises(StoreUnavailable) as caught:
            store.commit(batch)
        assert not caught.value.unknown
        assert store.commit(batch) == [COMMITTED] * len(batch)
    assert proxy.cuts == 2
    assert seqs(store) == [1, 2, 3, 4]


@pytest.mark.parametrize("where", AFTER)
def test_the_answers_of_a_second_look_are_kept(store: Store, proxy: Proxy, author: Author, where: Where) -> None:
    stale = author.stale()
    assert store.commit([author.step()]) == [COMMITTED]
    other = Author("run-2", store.now())
    proxy.on_commit(where, touching=LOG, skip=1)  # the first look never gets to its COMMIT
    assert store.commit([other.create(), stale.step(), author.step()]) == [COMMITTED, Conflict(3), COMMITTED]
    assert proxy.cuts == 1
    assert seqs(store) == [1, 2, 3, 4]
    assert seqs(store, "run-2") == [1]


@pytest.mark.parametrize("where", AFTER)
def test_a_claim_that_was_committed_is_kept(store: Store, proxy: Proxy, where: Where) -> None:
    author = Author("run-1", store.now())
    store.commit([author.create()])
    store.register(worker("w", store.now(), 60_000_000))
    proxy.on_commit(where, touching=LOG)
    claimed = store.claim(ClaimRequest("w", ("default",), ("0 order",), 10), claims_for("w"))
    assert proxy.cuts == 1
    assert claimed is not None
    assert [one.row.id for one in claimed.taken] == ["run-1"]
    assert store.owned("w") == {"run-1": (1, 0)}
    assert seqs(store) == [1, 2]


@pytest.mark.parametrize("where", AFTER)
def test_an_upgrade_that_was_committed_is_confirmed_and_made_once(store: Store, proxy: Proxy, where: Where) -> None:
    author = Author("run-1", store.now())
    assert store.commit([author.create(version_id=1)]) == [COMMITTED]
    upgrade = author.upgraded(1, 2)
    proxy.on_commit(where, touching=LOG)
    assert store.commit([upgrade]) == [COMMITTED]
    assert proxy.cuts == 1
    assert store.commit([upgrade]) == [COMMITTED]
    assert seqs(store) == [1, 2]
    assert [row.to_version for row in store.catalog.upgrades_of("run-1")] == [2]


def test_an_upgrade_that_was_not_committed_is_made_when_it_is_repeated(store: Store, proxy: Proxy) -> None:
    author = Author("run-1", store.now())
    assert store.commit([author.create(version_id=1)]) == [COMMITTED]
    upgrade = author.upgraded(1, 2)
    proxy.on_commit("before", touching=LOG)
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([upgrade])
    assert not caught.value.unknown
    assert store.catalog.upgrades_of("run-1") == []
    assert store.commit([upgrade]) == [COMMITTED]
    assert [row.to_version for row in store.catalog.upgrades_of("run-1")] == [2]


def test_while_the_database_cannot_be_asked_it_is_unknown(store: Store, proxy: Proxy, author: Author) -> None:
    proxy.on_commit("after", touching=LOG)
    proxy.refuse()
    batch = [author.step()]
    with pytest.raises(StoreUnavailable) as caught:
        store.commit(batch)
    assert caught.value.unknown
    proxy.refuse(refusing=False)
    assert store.commit(batch) == [COMMITTED]
    assert seqs(store) == [1, 2, 3]


def cut_many(store: Store, proxy: Proxy, author: Author, rounds: int) -> None:
    """Each commit is cut somewhere; each is repeated until it is confirmed; each is there once."""
    places: list[Where] = ["before", "after", "mid-reply"]
    for number in range(rounds):
        proxy.on_commit(places[number % 3], touching=LOG)
        batch = [author.step(str(number).encode())]
        while True:
            try:
                assert store.commit(batch) == [COMMITTED]
            except StoreUnavailable:
                continue
            break
    assert proxy.cuts == rounds
    assert [event.payload for event in store.load("run-1", after=2)] == [str(n).encode() for n in range(rounds)]


def test_many_lost_answers(store: Store, proxy: Proxy, author: Author) -> None:
    cut_many(store, proxy, author, 30)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_thousand_lost_answers(store: Store, proxy: Proxy, author: Author) -> None:
    cut_many(store, proxy, author, 1000)
