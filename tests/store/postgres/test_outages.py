"""Answers that are lost, servers that stop, locks that do not come: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import perdure
from perdure.errors import StoreUnavailable, UsageError
from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED, Blocked, Conflict, Existing, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.postgres.link import PostgresLink
from perdure.store.server.dialect import LinkLost
from perdure.testing.author import Author, claims_for, worker
from tests.servers.fixtures import Database, Servers
from tests.servers.proxy import Proxy, Where


@pytest.fixture
def proxy(servers: Servers, postgres_db: Database) -> Proxy:
    return servers.proxy(postgres_db.server)


@pytest.fixture
def make(postgres_db: Database, proxy: Proxy) -> Iterator[Callable[..., Store]]:
    """Give a maker of open stores behind the proxy."""
    made: list[Store] = []

    def store(**options: Any) -> Store:
        made.append(open_store(postgres_db.server.url(postgres_db.name, port=proxy.port), StoreOptions(**options)))
        made[-1].open()
        return made[-1]

    yield store
    for one in made:
        one.close()


def link_of(store: Store, purpose: str) -> PostgresLink:
    assert isinstance(store, Instrumented)
    with store.inner._links.lend(purpose) as link:  # type: ignore[attr-defined]
        assert isinstance(link, PostgresLink)
        return link


def running(store: Store, run_id: str = "run-1") -> Author:
    author = Author(run_id, store.now())
    assert store.commit([author.create(), author.claimed("w1")]) == [COMMITTED] * 2
    return author


@pytest.mark.parametrize("where", ["after", "mid-reply"])
def test_a_commit_whose_answer_is_lost_is_found_by_its_own_ids(
    make: Callable[..., Store], proxy: Proxy, where: Where
) -> None:
    store = make()
    author = running(store)
    cuts = proxy.cuts
    proxy.on_commit(where, touching="event")
    fresh = Author("run-2", store.now())
    assert store.commit([author.step(), fresh.create()]) == [COMMITTED] * 2
    assert proxy.cuts == cuts + 1
    assert store.commit([author.step(), fresh.claimed()]) == [COMMITTED] * 2
    assert len(store.load("run-1")) == 4
    assert len(store.load("run-2")) == 2


def test_a_commit_that_did_not_arrive_is_known_not_to_have_happened(make: Callable[..., Store], proxy: Proxy) -> None:
    store = make()
    author = running(store)
    proxy.on_commit("before", touching="event")
    step = author.step()
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([step])
    assert not caught.value.unknown
    assert len(store.load("run-1")) == 2
    assert store.commit([step]) == [COMMITTED]
    assert len(store.load("run-1")) == 3


@pytest.mark.parametrize("where", ["after", "mid-reply"])
def test_a_second_look_whose_commit_is_lost_is_found_too(
    make: Callable[..., Store], proxy: Proxy, where: Where
) -> None:
    store = make()
    author = running(store)
    stale = author.stale()
    assert store.commit([author.step()]) == [COMMITTED]
    other = running(store, "run-2")
    proxy.on_commit(where, touching="savepoint")
    assert store.commit([stale.step(), other.step()]) == [Conflict(3), COMMITTED]
    assert proxy.cuts == 1
    assert [len(store.load(run_id)) for run_id in ("run-1", "run-2")] == [3, 3]


@pytest.mark.parametrize("where", ["after", "mid-reply"])
def test_a_claim_whose_answer_is_lost_is_found(make: Callable[..., Store], proxy: Proxy, where: Where) -> None:
    store = make()
    store.commit([Author("run-1", store.now()).create()])
    store.register(worker("w1", store.now()))
    proxy.on_commit(where, touching="event")
    claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 5), claims_for("w1"))
    assert proxy.cuts == 1
    assert claims is not None
    assert [one.row.id for one in claims.taken] == ["run-1"]
    assert store.owned("w1") == {"run-1": (1, 0)}


def test_a_lost_answer_to_a_repeated_start_is_the_same_run(make: Callable[..., Store], proxy: Proxy) -> None:
    store = make()
    create = Author("run-1", store.now()).create(fresh=False)
    proxy.on_commit("after", touching="insert")
    assert store.commit([create]) == [COMMITTED]
    again = Author("run-1", store.now()).create(fresh=False)
    assert store.commit([again]) == [Existing(create.row)]


def test_a_server_that_does_not_answer_is_given_up_in_time(
    make: Callable[..., Store], proxy: Proxy, postgres_db: Database
) -> None:
    store = make(busy_timeout_s=0.5)
    author = running(store)
    proxy.freeze()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.heartbeat("w1", 600_000)
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([author.step()])
    assert time.monotonic() - began < 10
    assert caught.value.unknown
    proxy.thaw()
    assert store.get("run-1") is not None


def test_a_commit_that_is_answered_by_rollback_is_noticed(make: Callable[..., Store]) -> None:
    link = link_of(make(), "write")
    link.begin()
    with pytest.raises(psycopg.errors.UniqueViolation):
        link.execute("note_migration", 1, "again", "x")
    with pytest.raises(LinkLost) as caught:
        link.commit()
    assert not caught.value.committing
    assert not link.usable


def test_a_cut_connection_is_made_anew(make: Callable[..., Store], postgres_db: Database) -> None:
    store = make()
    author = running(store)
    postgres_db.server.cut_connections(postgres_db.name)
    assert store.get("run-1") is not None
    step = author.step()
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([step])
    assert not caught.value.unknown
    assert store.commit([step]) == [COMMITTED]


def test_an_error_tells_why_the_server_ended_the_connection(make: Callable[..., Store], postgres_db: Database) -> None:
    store = make()
    store.register(worker("w1", store.now()))
    step = running(store).step()
    postgres_db.server.cut_connections(postgres_db.name)
    with pytest.raises(StoreUnavailable, match="terminating connection due to administrator command"):
        store.commit([step])
    with pytest.raises(StoreUnavailable, match="terminating connection due to administrator command"):
        store.claim(ClaimRequest("w1", ("default",), ("0 order",), 5), claims_for("w1"))


def test_two_batches_that_would_deadlock_are_both_committed(make: Callable[..., Store], postgres_db: Database) -> None:
    """Purges lock in the order of the batch: two that cross make a deadlock, which the server ends."""
    store, second = make(), make()
    authors = [Author(f"run-{n}", store.now()) for n in range(40)]
    for author in authors:
        store.commit([author.create(), author.claimed(), author.completed()])
    answers: list[Any] = []
    barrier = threading.Barrier(2)

    def work(handle: Store, order: list[Author]) -> None:
        barrier.wait()
        purges = [author.purge() for author in order]
        while purges:
            outcomes = handle.commit(purges) or []
            answers.append(outcomes)
            blocked = [isinstance(outcome, Blocked) for outcome in outcomes]
            purges = [purge for purge, again in zip(purges, blocked, strict=True) if again]

    threads = [
        threading.Thread(target=work, args=pair) for pair in ((store, authors), (second, list(reversed(authors))))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome is COMMITTED for outcomes in answers for outcome in outcomes) == 40
    assert postgres_db.execute("select count(*) from perdure.run") == [(0,)]


def test_a_claim_waits_for_nobody(make: Callable[..., Store], postgres_db: Database) -> None:
    store = make()
    store.commit([Author(f"run-{n}", store.now()).create() for n in range(3)])
    store.register(worker("w1", store.now()))
    with psycopg.connect(postgres_db.url) as other:
        other.execute("select 1 from perdure.run where id = 'run-1' for update")
        began = time.monotonic()
        claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 5), claims_for("w1"))
        assert time.monotonic() - began < 5
        assert claims is not None
        assert [one.row.id for one in claims.taken] == ["run-0", "run-2"]


def test_a_child_of_fork_is_refused_and_harms_nothing(make: Callable[..., Store]) -> None:
    store = make()
    author = running(store)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store.get("run-1")
        except UsageError:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 16) == b"refused"
    os.close(reading)
    os.close(writing)
    assert store.commit([author.step()]) == [COMMITTED]


@perdure.step
async def add(n: int) -> int:
    return n + 1


@perdure.workflow
async def count(until: int) -> int:
    n = 0
    while n < until:
        n = await add(n)
    return n


async def test_work_goes_on_by_itself_when_the_server_was_killed(servers: Servers) -> None:
    server = servers.postgres(settings={"fsync": "on"})
    async with perdure.Engine(server.url(server.new_database()), [count], lease=2.0) as engine:
        runs = [await engine.start(count, 150, id=f"run-{n}") for n in range(20)]
        for _ in range(3):
            before = await progress(runs)
            server.kill()
            server.start()
            while await progress(runs) <= before and not await ended(runs):
                pass
        assert [await run.result(timeout=30) for run in runs] == [150] * 20
        for run in runs:
            types = [event.type for event in await run.history()]
            assert types.count("step_completed") == 150


async def progress(runs: list[Any]) -> int:
    try:
        return sum([len(await run.history()) for run in runs[:3]])
    except StoreUnavailable:
        return 0


async def ended(runs: list[Any]) -> bool:
    return all([await run.status() == "completed" for run in runs])


def test_a_batch_whose_connection_was_lost_while_it_waited_is_not_done_behind_our_back(
    make: Callable[..., Store], proxy: Proxy, postgres_db: Database
) -> None:
    """The server goes on with it, because it notices the end of a client only when it has an answer."""
    store = make()
    author = running(store)
    batch: list[Write] = [author.send(), author.step()]
    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(store.commit(batch))
        except StoreUnavailable as error:
            answers.append(error)

    with psycopg.connect(postgres_db.url) as other:
        other.execute("select 1 from perdure.run where id = 'run-1' for update")
        thread = threading.Thread(target=work)
        thread.start()
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        while postgres_db.execute(waiting) != [(1,)]:
            assert thread.is_alive()
        proxy.cut()
        thread.join()
        (answer,) = answers
        assert isinstance(answer, StoreUnavailable)
        assert not answer.unknown
    while postgres_db.execute("select count(*) from pg_locks where relation = 'perdure.run'::regclass") != [(0,)]:
        pass
    assert store.commit(batch) == [COMMITTED] * 2
    assert [message.n for message in store.inbox("run-1")] == [1]


def test_a_worker_that_listens_listens_again_after_a_restart(servers: Servers) -> None:
    server = servers.postgres()
    url = server.url()
    first, second = open_store(url, StoreOptions()), open_store(url, StoreOptions())
    for store in (first, second):
        store.open()
    try:
        before = second.change_count()
        server.kill()
        server.start()
        moved(second, before)  # the loss itself: whatever was said meanwhile is not known
        assert second.get("run-1") is None
        first.get("run-1")
        before = second.change_count()
        create = Author("run-1", first.now()).create()
        with pytest.raises(StoreUnavailable):  # the connection for writes was there, too; a writer tries again
            first.commit([create])
        assert first.commit([create]) == [COMMITTED]
        moved(second, before)
    finally:
        for store in (first, second):
            store.close()


def moved(store: Store, before: int) -> None:
    """Wait until it says that something has changed since it said ``before``."""
    deadline = time.monotonic() + 10
    while store.change_count() == before:
        assert time.monotonic() < deadline


def test_a_hint_is_not_lost_with_the_connection(make: Callable[..., Store], postgres_db: Database) -> None:
    """Whoever trusts in hints would look for work much later."""
    teller, hearer = make(), make()
    pid = link_of(teller, "work")._pgconn.backend_pid
    assert postgres_db.execute("select pg_terminate_backend(%s, 5000)", [pid]) == [(True,)]
    before = hearer.change_count()
    assert teller.commit([Author("run-1", teller.now()).create()]) == [COMMITTED]
    deadline = time.monotonic() + 3
    while hearer.change_count() == before:
        assert time.monotonic() < deadline, "no hint came"
        threading.Event().wait(0.01)
