"""A batch on its way while nobody waits for it: it ends as a commit would have ended, whatever happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.write import COMMITTED, Conflict, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.server.dialect import LinkLost
from perdure.testing.author import Author
from perdure.testing.conformance.creating import CreatingContract
from perdure.testing.conformance.telling import TellingContract
from perdure.testing.conformance.upgrading import UpgradingContract
from perdure.testing.conformance.writing import WritingContract
from tests.servers.fixtures import Database
from tests.servers.proxy import Proxy
from tests.store.sending import Sending, arrive, sending

LOG = r"\bevent\b"


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> str:
    """Give each kind of server that can be sent to."""
    return str(request.param)


@pytest.fixture
def database(new_store: Callable[[str], Database], server: str) -> Database:
    return new_store(server)


class TestContract(WritingContract, CreatingContract, TellingContract, UpgradingContract):
    """What every store must keep, with every commit a flight."""

    @pytest.fixture
    def make(self, server: str, request: pytest.FixtureRequest) -> Callable[[], Store]:
        of_kind = request.getfixturevalue("emptied" if server == "postgres" else "new_store")
        url = of_kind(server).url

        def made() -> Any:
            return Sending(open_store(url, StoreOptions()))

        return made


@pytest.fixture
def store(database: Database, proxy: Proxy) -> Iterator[Any]:
    """Give a store whose connections go through the proxy."""
    with sending(database.server.url(database.name, port=proxy.port), 2.0) as store:
        yield store


@pytest.fixture
def author(store: Any) -> Author:
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    return author


def seqs(store: Any, run_id: str = "run-1") -> list[int]:
    return [event.seq for event in store.load(run_id)]


@pytest.mark.parametrize("where", ["after", "mid-reply"])
def test_what_was_committed_is_confirmed_though_its_answer_was_lost(
    store: Any, proxy: Proxy, author: Author, where: Any
) -> None:
    proxy.on_commit(where, touching=LOG)
    assert store.commit([author.step(), Author("run-2", store.now()).create()]) == [COMMITTED] * 2
    assert (proxy.cuts, store.failed) == (1, 1)
    assert seqs(store) == [1, 2, 3]


def test_what_was_not_committed_is_said_to_be_unavailable_and_can_be_repeated(
    store: Any, proxy: Proxy, author: Author
) -> None:
    batch: list[Write] = [author.step()]
    proxy.on_commit("before", touching=LOG)
    with pytest.raises(StoreUnavailable) as caught:
        store.commit(batch)
    assert not caught.value.unknown
    assert store.commit(batch) == [COMMITTED]
    assert seqs(store) == [1, 2, 3]


def test_one_refused_write_takes_no_neighbour_with_it(store: Any, author: Author) -> None:
    stale = author.stale()
    assert store.commit([author.step()]) == [COMMITTED]
    other = Author("run-2", store.now())
    assert store.commit([other.create(), stale.step(), author.step()]) == [COMMITTED, Conflict(3), COMMITTED]
    assert store.failed == 1
    assert store.commit([author.step()]) == [COMMITTED], "the connection is as good as before"
    assert store.failed == 1
    assert seqs(store) == [1, 2, 3, 4, 5]


def test_a_batch_that_a_socket_does_not_take_at_once_arrives(database: Database, proxy: Proxy) -> None:
    store: Any = Sending(open_store(database.server.url(database.name, port=proxy.port), StoreOptions()))
    store.open()
    authors = [Author(f"run-{n}", store.now()) for n in range(20)]
    assert store.commit([author.create() for author in authors]) == [COMMITTED] * 20
    proxy.freeze()
    flight = store.inner.send([author.step(b'"' + b"x" * 1_000_000 + b'"') for author in authors])
    assert flight.unsent
    proxy.thaw()
    arrive(flight)
    assert flight.error is None
    assert flight.outcomes == [COMMITTED] * 20
    assert len(store.load("run-19")[1].payload) == 1_000_002
    store.close()


def test_while_one_is_on_its_way_there_is_no_other(store: Any, author: Author) -> None:
    flight = store.inner.send([author.step()])
    assert store.inner.send([Author("run-2", store.now()).create()]) is None
    arrive(flight)
    again = store.inner.send([author.step()])
    arrive(again)
    assert again.error is None


def test_one_that_takes_too_long_expires_and_is_looked_for(store: Any, author: Author, database: Database) -> None:
    batch: list[Write] = [author.step()]
    flight = store.inner.send(batch)
    flight.expire()
    assert isinstance(flight.error, LinkLost)
    with suppress(StoreUnavailable):  # the server had it, or not
        assert store.inner.land(batch, flight) == [COMMITTED]
    assert store.commit(batch) == [COMMITTED]
    assert seqs(store) == [1, 2, 3]


def test_a_server_that_falls_silent_is_waited_for_no_longer_than_the_deadline(
    store: Any, proxy: Proxy, author: Author
) -> None:
    proxy.freeze()
    began = time.monotonic()
    flight = store.inner.send([author.step()])
    arrive(flight)
    assert isinstance(flight.error, LinkLost)
    assert 1.5 < time.monotonic() - began < 4
    proxy.thaw()


def test_one_that_is_abandoned_lets_the_store_close(store: Any, author: Author) -> None:
    flight = store.inner.send([author.step()])
    flight.abandon()
    assert flight.is_over
    assert flight.advance()
    store.close()
