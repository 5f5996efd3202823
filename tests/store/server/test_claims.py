"""A claim on a server: few round trips when all is as it should be, and a second, careful try when it is not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import psycopg
import pymysql
import pytest

from perdure.errors import StoreUnavailable
from perdure.model.claim import Claimed, ClaimRequest
from perdure.model.status import EventType
from perdure.model.write import COMMITTED
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.mysql.dialect import MysqlDialect
from perdure.store.mysql.link import MysqlLink
from perdure.store.postgres.dialect import PostgresDialect
from perdure.store.postgres.link import PostgresLink
from perdure.testing.author import Author, claims_for
from perdure.testing.conformance.contract import accept, claim, enlist
from perdure.testing.conformance.filling import change
from tests.servers.fixtures import Database, Servers
from tests.servers.postgres import Postgres


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give how many times the server was asked in each transaction of a claim, its look before not counted.

    Stores have threads of their own, which send hints meanwhile: what they ask is no part of a claim.
    """
    found: list[int] = []
    claiming = threading.get_ident()

    def begins(link: PostgresLink | MysqlLink) -> None:
        if threading.get_ident() == claiming:
            found.append(0)
        link._beginning = True

    def counting(run: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            if found and threading.get_ident() == claiming:
                found[-1] += 1
            return run(*args, **options)

        return counted

    for kind in (PostgresLink, MysqlLink):
        monkeypatch.setattr(kind, "begin", begins)
        monkeypatch.setattr(kind, "run", counting(kind.run))
    return found


def test_a_claim_of_what_was_recorded_here_enters_chooses_and_ends(
    open_more: Callable[[], Store], trips: list[int]
) -> None:
    store = open_more()
    enlist(store, "w1")
    for n in range(20):
        accept(store, Author(f"run-{n}", store.now()).create())
    trips.clear()
    taken = claim(store, "w1", limit=20)
    assert len(taken) == 20
    assert trips == [3]


def test_a_claim_of_what_was_recorded_elsewhere_reads_the_logs_as_well(
    open_more: Callable[[], Store], trips: list[int]
) -> None:
    client, store = open_more(), open_more()
    enlist(store, "w1")
    for n in range(20):
        accept(client, Author(f"run-{n}", client.now()).create())
    trips.clear()
    taken = claim(store, "w1", limit=20)
    assert len(taken) == 20
    assert trips == [4]
    assert {len(one.recent) for one in taken} == {1}


def test_what_was_added_to_a_log_elsewhere_is_seen(open_more: Callable[[], Store], trips: list[int]) -> None:
    """What is known here of a log is no longer true: the claim does not fit, and is made again with its eyes open."""
    store, other = open_more(), open_more()
    enlist(store, "w1")
    authors = [Author(f"run-{n}", store.now()) for n in range(3)]
    for author in authors:
        accept(store, author.create())
    accept(other, authors[1].step())
    trips.clear()
    taken = claim(store, "w1")
    assert len(trips) == 2
    assert {one.row.id: [event.seq for event in one.recent] for one in taken} == {
        "run-0": [1], "run-1": [1, 2], "run-2": [1]
    }  # fmt: skip
    for author in authors:
        seqs = [event.seq for event in other.load(author.run_id)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert other.load(author.run_id)[-1].type == "run_claimed"


def test_a_run_that_cannot_be_claimed_keeps_no_other_from_it(
    database: Database, open_more: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = open_more()
    enlist(store, "w1")
    for n in range(3):
        accept(store, Author(f"run-{n}", store.now()).create())
    table = "perdure.event" if isinstance(database.server, Postgres) else "event"
    database.execute(f"alter table {table} add constraint odd_ck check (run_id <> 'run-1' or seq < 2)")
    with caplog.at_level(logging.ERROR, "perdure.store"):
        taken = claim(store, "w1")
    assert [one.row.id for one in taken] == ["run-0", "run-2"]
    assert "'run-1' is due and cannot be claimed: its row and its log contradict each other" in caplog.text
    assert store.owned("w1").keys() == {"run-0", "run-2"}
    caplog.clear()
    assert claim(store, "w1") == []
    assert not caplog.records  # it is passed over from then on


def test_a_worker_that_is_not_live_gets_nothing(open_more: Callable[[], Store]) -> None:
    store = open_more()
    enlist(store, "w1")
    accept(store, Author("run-1", store.now()).create())
    for only in (None, "run-1"):
        request = ClaimRequest("nobody", ("default",), ("0 order",), 10, only=only)
        claims = store.claim(request, claims_for("nobody"))
        assert claims is not None
        assert claims.taken == []
    assert [one.row.id for one in claim(store, "w1")] == ["run-1"]


def test_a_claim_that_is_undone_takes_nothing(
    open_more: Callable[[], Store], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it, as in a deadlock, and when it is tried again somebody else has the runs."""
    store, other = open_more(), open_more()
    enlist(store, "w1", "w2")
    for n in range(3):
        accept(store, Author(f"run-{n}", store.now()).create())
    is_postgres = isinstance(database.server, Postgres)
    dialect: type[Any] = PostgresDialect if is_postgres else MysqlDialect
    conclude = dialect.conclude
    links: list[Any] = []
    theirs: list[Claimed] = []

    def failing(self: Any, link: Any, *rest: Any) -> None:
        links.append(link)
        if len(links) > 1:
            conclude(self, link, *rest)
            return
        link.rollback()
        theirs.extend(claim(other, "w2"))
        raise psycopg.errors.DeadlockDetected if is_postgres else pymysql.err.OperationalError(1213, "Deadlock found")

    monkeypatch.setattr(dialect, "conclude", failing)
    assert claim(store, "w1") == []
    assert {one.row.id for one in theirs} == {"run-0", "run-1", "run-2"}


def test_a_run_that_is_cancelled_while_it_is_claimed_has_one_end(open_more: Callable[[], Store]) -> None:
    store, other = open_more(), open_more()
    enlist(store, "w1")
    author = Author("run-1", store.now())
    accept(store, author.create())
    outcomes: list[object] = []
    threads: list[threading.Thread] = []
    decide = claims_for("w1")

    def cancelling(*given: Any) -> Claimed:
        if not threads:
            write = author.move(EventType.RUN_CANCELLED)
            threads.append(threading.Thread(target=lambda: outcomes.extend(other.commit([write]) or ())))
            threads[0].start()
            threads[0].join(0.02)
        return decide(*given)

    claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 10), cancelling)
    threads[0].join()
    assert claims is not None
    assert {one.row.id for one in claims.taken} == store.owned("w1").keys()
    assert (outcomes == [COMMITTED]) == (not claims.taken)


def test_runs_with_keys_are_claimed_by_one_worker_each(database: Database, open_more: Callable[[], Store]) -> None:
    """Three workers at once; none of them dies, and none is in the way of another.

    They take two runs at a time, so that one often looks just as another one ends.
    """
    stores = [open_more() for _ in range(3)]
    before = deadlocks(database)
    enlist(stores[0], "w0", "w1", "w2")
    told: list[str] = []

    def work(n: int, start: threading.Barrier) -> None:
        start.wait()
        while taken := claim(stores[n], f"w{n}", limit=2):
            told.extend(one.row.id for one in taken)

    ids = [[f"run-{turn}-{n}" for n in range(60)] for turn in range(12)]
    for turn in ids:
        now = stores[0].now()
        accept(stores[0], *(Author(run_id, now).create(partition_key=run_id) for run_id in turn))
        start = threading.Barrier(3)
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(work, n, start) for n in range(3)]:
                done.result()
    while left := claim(stores[0], "w0", limit=100):  # what was passed over as somebody else was claiming it
        told.extend(one.row.id for one in left)
    assert sorted(told) == sorted(run_id for turn in ids for run_id in turn)
    assert deadlocks(database) == before


def deadlocks(database: Database) -> int:
    """Return how many the server has met so far."""
    if isinstance(database.server, Postgres):
        database.execute("select pg_stat_force_next_flush()")
        return int(database.execute("select sum(deadlocks) from pg_stat_database")[0][0])
    return int(database.execute("show global status like 'Innodb_deadlocks'")[0][1])


def test_a_run_that_ends_as_it_comes_back_to_its_slot_is_not_claimed(
    open_more: Callable[[], Store], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_more(), open_more()
    enlist(store, "w1")
    accept(store, change("lim", concurrency=1, hold_while_waiting=1))
    author = Author("run-1", store.now())
    accept(store, author.create(queue="lim"))
    (one,) = claim(store, "w1", queues=("lim",))
    author.follow(one)
    accept(store, author.move(EventType.RUN_WAITING, wake_at=store.now()))
    accept(store, Author("run-2", store.now()).create(queue="lim"))
    link: type[Any] = PostgresLink if isinstance(database.server, Postgres) else MysqlLink
    execute = link.execute
    found: list[object] = []

    def ending(self: Any, name: str, *values: Any) -> Any:
        result = execute(self, name, *values)
        if name == "returning" and not found:
            found.extend(result.rows)
            accept(other, author.move(EventType.RUN_CANCELLED))
        return result

    monkeypatch.setattr(link, "execute", ending)
    taken = claim(store, "w1", queues=("lim",))
    assert found == [("run-1",)]
    taken += claim(store, "w1", queues=("lim",))
    assert [one.row.id for one in taken] == ["run-2"]


@pytest.mark.parametrize("noticed", ["not before", "by a read", "by a look for hints"])
def test_a_log_that_the_server_has_lost_is_not_gone_by(
    database: Database, servers: Servers, open_more: Callable[[], Store], noticed: str
) -> None:
    """The server comes back without its last commits, as an asynchronous standby may, and the run is started anew."""
    proxy = servers.proxy(database.server)
    store = open_store(database.server.url(database.name, port=proxy.port), StoreOptions())
    store.open()
    other = open_more()
    enlist(store, "w1")
    accept(store, Author("run-1", store.now()).create(input_digest=1))
    lose_all_runs(database)
    proxy.cut()
    second = Author("run-1", store.now() + 5).create(input_digest=2)
    accept(other, second)
    if noticed == "by a read":
        store.going_on(["run-1"])
    taken: list[Claimed] = []
    while not taken:
        if noticed == "by a look for hints":
            store.change_count()
        with suppress(StoreUnavailable):
            taken = claim(store, "w1")
    store.close()
    assert [one.recent for one in taken] == [second.events]


def lose_all_runs(database: Database) -> None:
    """Make the database forget all runs and their logs."""
    if isinstance(database.server, Postgres):
        database.execute("alter table perdure.event disable trigger user")
        database.execute("delete from perdure.event")
        database.execute("delete from perdure.run")
        database.execute("alter table perdure.event enable trigger user")
        return
    query = "select trigger_name from information_schema.triggers where event_object_table = 'event'"
    for (name,) in database.rows(f"{query} and trigger_schema = database()"):
        database.execute(f"drop trigger {name}")
    database.execute("delete from event")
    database.execute("delete from run")


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_lies_in_the_past_however_far_behind_the_clock_was(database: Database, *, limited: bool) -> None:
    """So it is when every answer that carried the time took long. Of a limited queue the time is asked twice."""
    with closing(open_store(database.url, StoreOptions())) as store:
        store.open()
        if limited:
            accept(store, change(concurrency=5))
        accept(store, Author("run-1", store.now() - 1_000_000).create())
        enlist(store, "w1")
        clock = store.inner._clock  # type: ignore[attr-defined]
        behind = clock._offset - 50_000
        clock._offset, clock._spans = behind, [(start, behind) for start, _ in clock._spans]
        clock._last = 0
        (claimed,) = claim(store, "w1")
        assert claimed.append.events[0].at <= store.now()
