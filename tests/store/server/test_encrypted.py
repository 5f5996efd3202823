"""Over TLS, too, a batch is on its way while nobody waits: what TLS has decrypted, no socket shows as readable.

Records of TLS have at most 16 KB, so what is sent and what is answered here has more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from typing import Any

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED, Conflict, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.server.dialect import LinkLost
from perdure.store.server.flight import ServerFlight
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance import StoreConformance
from tests.servers.certificate import Certificate
from tests.servers.fixtures import Database, Servers
from tests.servers.proxy import Proxy
from tests.store.sending import Sending, arrive, sending

RECORD = 16 << 10
LARGE = b'"' + b"x" * 1_000_000 + b'"'
KINDS = ["postgres", "mariadb"]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> str:
    """Give each kind of server that has TLS here."""
    return str(request.param)


@pytest.fixture(scope="module")
def encrypting(certificate: Certificate) -> Iterator[Callable[[str], Any]]:
    """Give a function from a kind to the one server that takes no connection without TLS."""
    servers = Servers()
    yield cache(lambda kind: servers.start(kind, tls=certificate))
    servers.close()


@pytest.fixture
def database(encrypting: Callable[[str], Any], server: str) -> Iterator[Database]:
    database = Database(encrypting(server), encrypting(server).new_database())
    yield database
    database.drop()


@pytest.fixture
def store(database: Database, proxy: Proxy) -> Iterator[Any]:
    """Give a store whose connections go through the proxy, and whose commits are flights."""
    with sending(database.server.url(database.name, port=proxy.port), 5.0) as store:
        yield store


def digest(text: bytes) -> str:
    """Give what a failed comparison can be read by."""
    return f"{len(text)} bytes, {sha256(text).hexdigest()}"


def test_what_is_larger_than_a_record_arrives_both_ways(store: Any, proxy: Proxy) -> None:
    """A batch that no socket takes at once, an answer to it of many records, and a history of many records."""
    authors = [Author(f"run-{n}", store.now()) for n in range(12)]
    assert store.commit([author.create() for author in authors]) == [COMMITTED] * 12
    proxy.freeze()
    flight = store.inner.send([author.step(LARGE) for author in authors])
    assert flight.unsent
    proxy.thaw()
    arrive(flight)
    assert flight.error is None
    messages: list[Write] = [author.send() for author in authors for _ in range(60)]
    assert set(store.commit(messages)) == {COMMITTED}
    for author in authors:
        assert digest(store.load(author.run_id)[1].payload) == digest(LARGE)
        assert len(store.inbox(author.run_id)) == 60
    assert store.failed == 0


def test_an_answer_is_seen_to_its_end_wherever_records_end(store: Any) -> None:
    for size in (1, 100, 8_100, 8_192, 16_300, 16_384, 16_400, 32_700, 65_500):
        author = Author(f"run-{size}", store.now())
        text = b'"' + b"x" * size + b'"'
        assert store.commit([author.create(), *(author.step(text) for _ in range(5))]) == [COMMITTED] * 6
        assert [digest(event.payload) for event in store.load(author.run_id)[1:]] == [digest(text)] * 5


def test_a_batch_that_is_not_as_expected_is_looked_at(store: Any) -> None:
    """The look waits: on the connection that was just told not to."""
    author, other = Author("run-1", store.now()), Author("run-2", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    stale = author.stale()
    assert store.commit([author.step()]) == [COMMITTED]
    assert store.commit([other.create(), stale.step(), author.step(LARGE)]) == [COMMITTED, Conflict(3), COMMITTED]
    assert store.failed == 1
    assert store.commit([author.step()]) == [COMMITTED]
    assert store.failed == 1
    store.register(worker("w1", store.now()))
    claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 1), claims_for("w1"))
    assert [one.row.id for one in claims.taken] == ["run-2"]


def test_a_silent_server_is_waited_for_until_the_deadline_and_what_it_did_is_found(store: Any, proxy: Proxy) -> None:
    author = Author("run-1", store.now())
    batch: list[Write] = [author.create()]
    proxy.freeze()
    flight = store.inner.send(batch)
    assert not flight.advance()
    flight.expire()
    assert isinstance(flight.error, LinkLost)
    proxy.thaw()
    outcomes = None
    while outcomes is None:
        try:
            outcomes = store.inner.land(batch, flight)
        except StoreUnavailable:
            outcomes = store.commit(batch)
    assert outcomes == [COMMITTED]
    assert len(store.load("run-1")) == 1


def test_a_connection_that_is_cut_under_a_batch_is_replaced(store: Any, proxy: Proxy) -> None:
    author = Author("run-1", store.now())
    batch: list[Write] = [author.create(), *(author.step(LARGE) for _ in range(5))]
    proxy.freeze()
    flight = store.inner.send(batch)
    assert proxy.cut() >= 2
    arrive(flight)
    assert isinstance(flight.error, LinkLost)
    proxy.thaw()
    with pytest.raises(StoreUnavailable) as caught:
        store.inner.land(batch, flight)
    assert not caught.value.unknown
    assert store.commit(batch) == [COMMITTED] * 6


@perdure.step
async def lengthen(text: str) -> str:
    return text + "x" * RECORD


@perdure.workflow
async def grow(times: int) -> int:
    text = ""
    for _ in range(times):
        text = await lengthen(text)
    return len(text)


@perdure.workflow
async def orchard(trees: int) -> int:
    grown = await asyncio.gather(*(lengthen("y" * n) for n in range(trees)))
    return len("".join(grown))


async def test_an_engine_works(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of several steps and of steps side by side: started by a client, claimed and finished by a worker."""
    errors: list[Exception | None] = []
    end = ServerFlight._end

    def ended(flight: ServerFlight, error: Exception | None) -> None:
        errors.append(error)
        end(flight, error)

    monkeypatch.setattr(ServerFlight, "_end", ended)
    async with perdure.Engine(database.url, [grow, orchard], worker=False) as client:
        runs = [await client.start(grow, 5, id=f"run-{n}") for n in range(8)]
        wide = await client.start(orchard, 10, id="wide")
        async with perdure.Engine(database.url, [grow, orchard]):
            assert [await run.result(timeout=60) for run in runs] == [5 * RECORD] * 8
            assert await wide.result(timeout=60) == 10 * RECORD + 45
            for run in runs[:3]:
                assert [event.type for event in await run.history()].count("step_completed") == 5
    assert len(errors) > 8
    assert not any(errors)


@pytest.mark.nightly
class TestContract(StoreConformance):
    """All that a store must keep, with every commit a flight over TLS."""

    @pytest.fixture
    def make(self, database: Database) -> Callable[[], Store]:
        def made() -> Any:
            return Sending(open_store(database.url, StoreOptions()))

        return made
