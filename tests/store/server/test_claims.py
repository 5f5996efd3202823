"""A claim on a server: few round trips when all is as it should be, and a second, careful try when it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from perdure.model.claim import ClaimRequest
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.mysql.link import MysqlLink
from perdure.store.postgres.link import PostgresLink
from perdure.testing.author import Author, claims_for
from perdure.testing.conformance.contract import accept, claim, enlist
from tests.servers.fixtures import KINDS, Database
from tests.servers.postgres import Postgres


@pytest.fixture(params=KINDS)
def database(new_database: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    """Give an empty database of each kind."""
    return new_database(request.param)


@pytest.fixture
def open_more(database: Database) -> Iterator[Callable[[], Store]]:
    """Give a function that opens the database as another process would."""
    opened: list[Store] = []

    def more() -> Store:
        store = open_store(database.url, StoreOptions())
        store.open()
        opened.append(store)
        return store

    yield more
    for store in opened:
        store.close()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give how many times the server was asked in each transaction of a claim, its look before not counted."""
    found: list[int] = []

    def begins(link: PostgresLink | MysqlLink) -> None:
        found.append(0)
        link._beginning = True

    def counting(run: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            if found:
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
