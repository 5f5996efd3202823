"""What MySQL and MariaDB are known to do to those who do not expect it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
import pytest

from perdure.errors import StoreUnavailable
from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED, Blocked
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.mysql import fault
from perdure.store.server.dialect import Fault
from perdure.testing.author import Author, claims_for, worker
from tests.servers.fixtures import Database, Servers


def author_of(store: Store, run_id: str) -> Author:
    author = Author(run_id, store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    return author


@contextmanager
def hold(database: Database, run_id: str) -> Iterator[pymysql.Connection[Any]]:
    """Give a connection that has changed a run's row and not committed.

    It rolls back at the end: of a connection that is only closed, the server keeps the locks until it notices.
    """
    connection = database.server.connect(database.name)
    assert isinstance(connection, pymysql.Connection)
    with connection.cursor() as cursor:
        cursor.execute("start transaction")
        cursor.execute("update run set inbox_n = inbox_n where id = %s", (run_id,))
        cursor.execute("select no from run where id = %s for update", (run_id,))
    with closing(connection):
        yield connection
        connection.rollback()


class Elsewhere(threading.Thread):
    """Commits a batch on another thread, and keeps what came of it."""

    def __init__(self, store: Store, *batch: Any) -> None:
        super().__init__()
        self.store, self.batch = store, batch
        self.outcomes: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcomes = self.store.commit(self.batch)
        except Exception as error:
            self.outcomes = error


def test_a_lock_wait_that_is_given_up_leaves_nothing_half_done(store: Store, mariadb_db: Database) -> None:
    """Error 1205 undoes its statement alone. What came before it in the same part must not be committed."""
    author, other = author_of(store, "run-1"), Author("run-2", store.now())
    batch = (other.create(), author.step(), author.completed())
    with hold(mariadb_db, "run-1"):
        assert store.commit(batch) == [COMMITTED, Blocked("run-1"), Blocked("run-1")]
        assert [event.seq for event in store.load("run-1")] == [1, 2]
    assert store.commit(batch) == [COMMITTED] * 3
    assert [event.seq for event in store.load("run-1")] == [1, 2, 3, 4]
    assert [event.seq for event in store.load("run-2")] == [1]


def test_the_loser_of_a_deadlock_does_all_of_it_again(store: Store, mariadb_db: Database) -> None:
    """Error 1213 undoes the whole transaction: going on in it would be going on outside of it."""
    one, two = author_of(store, "run-1"), author_of(store, "run-2")
    met = "show global status like 'Innodb_deadlocks'"
    before = int(mariadb_db.execute(met)[0][1])
    with hold(mariadb_db, "run-2") as connection, connection.cursor() as cursor:
        # Whoever has changed less is the one who is undone.
        cursor.execute("insert into tag select concat('k', seq), 'v', seq from seq_1_to_2000")
        writing = Elsewhere(store, one.step(), one.completed(), two.step(), two.completed())
        waits = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
        while mariadb_db.execute(waits) == [(0,)]:
            assert writing.is_alive()
        cursor.execute("update run set inbox_n = inbox_n where id = 'run-1'")
        cursor.execute("delete from tag")
        connection.commit()
    writing.join(20)
    assert writing.outcomes == [COMMITTED] * 4
    assert int(mariadb_db.execute(met)[0][1]) == before + 1
    for run_id in ("run-1", "run-2"):
        assert [event.type for event in store.load(run_id)][2:] == ["step_completed", "run_completed"]


@pytest.mark.parametrize("size", [8, pytest.param(16, marks=pytest.mark.nightly)])
def test_claimers_and_starters_do_not_stand_in_each_others_way(
    store: Store, open_more: Callable[[], Store], mariadb_db: Database, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """Gap locks would: so there are none. Every run is claimed once."""
    each = 40
    deadlocks = "show global status like 'Innodb_deadlocks'"
    before = int(mariadb_db.execute(deadlocks)[0][1])
    taken: list[str] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def starter(name: int) -> None:
        mine = open_more()
        for number in range(each):
            author = Author(f"run-{name}-{number}", mine.now())
            assert mine.commit([author.create(priority=number % 3)]) == [COMMITTED]

    def claimer(name: int) -> None:
        mine = open_more()
        mine.register(worker(f"w{name}", mine.now(), 60_000_000))
        while True:
            last = done.is_set()
            request = ClaimRequest(f"w{name}", ("default",), ("0 order",), 5)
            claims = mine.claim(request, claims_for(f"w{name}"))
            assert claims is not None
            taken.extend(one.row.id for one in claims.taken)
            if last and not claims.taken:
                return

    def guarded(work: Callable[[int], None], name: int) -> None:
        try:
            work(name)
        except BaseException as error:
            failures.append(error)

    starters = [threading.Thread(target=guarded, args=(starter, name)) for name in range(size)]
    claimers = [threading.Thread(target=guarded, args=(claimer, name)) for name in range(size)]
    for thread in starters + claimers:
        thread.start()
    for thread in starters:
        thread.join()
    done.set()
    for thread in claimers:
        thread.join()
    assert not failures
    assert sorted(taken) == sorted(f"run-{name}-{number}" for name in range(size) for number in range(each))
    met = int(mariadb_db.execute(deadlocks)[0][1]) - before
    with capsys.disabled():
        print(f"\n{len(taken)} runs started and claimed by {size} and {size}: {met} deadlocks", end="")
    assert met <= size * each // 20


def test_a_server_that_checks_snapshots_is_no_different(servers: Servers) -> None:
    """MariaDB 11.6 and later answer 1020 to a change of what was changed meanwhile, unless at READ COMMITTED."""
    server = servers.mariadb(settings={"innodb_snapshot_isolation": "ON"})
    url = server.url(server.new_database())
    stores = [open_store(url, StoreOptions()) for _ in range(2)]
    for store in stores:
        store.open()
    author = author_of(stores[0], "run-1")
    for number in range(10):
        assert stores[number % 2].commit([author.step(), author.send()]) == [COMMITTED] * 2
    assert stores[1].commit([author.completed()]) == [COMMITTED]
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    "number,meaning",
    [(1205, Fault.BLOCKED), (3572, Fault.BLOCKED), (1213, Fault.AGAIN), (1020, Fault.AGAIN), (1062, Fault.WRITE),
     (4025, Fault.WRITE), (3819, Fault.WRITE), (1114, Fault.ENVIRONMENT), (1290, Fault.ENVIRONMENT),
     (9999, Fault.ENVIRONMENT)],
)  # fmt: skip
def test_errors_are_told_apart_by_number(number: int, meaning: Fault) -> None:
    assert fault.fault(pymysql.err.OperationalError(number, "as it says")) is meaning


def test_a_change_to_the_same_value_counts(store: Store) -> None:
    """Without FOUND_ROWS the second would answer 0, and a live worker would drop all its runs."""
    store.register(worker("w", store.now(), 60_000_000))
    assert store.heartbeat("w", 60_000_000).alive
    inner = store.inner  # type: ignore[attr-defined]
    with inner._opened().lend("work") as link:
        for _ in range(2):
            assert link.query("update worker set state = 'live' where id = ?", ("w",)).affected == 1


def test_a_client_that_falls_silent_in_a_transaction_is_put_out(store: Store, open_more: Callable[[], Store]) -> None:
    author = author_of(store, "run-1")
    frozen = open_more().inner  # type: ignore[attr-defined]
    frozen._dialect._statements["short"] = type(frozen._dialect._statements["short"])("set wait_timeout = 1")
    with frozen._opened().lend("work") as link:
        link.begin()
        link.execute("standings", ("run-1",))
        end = author.completed()
        while (outcomes := store.commit([end])) == [Blocked("run-1")]:
            pass
        assert outcomes == [COMMITTED]
        link.usable = False


def test_between_transactions_a_connection_may_rest(store: Store) -> None:
    author = author_of(store, "run-1")
    inner = store.inner  # type: ignore[attr-defined]
    stale = author.stale()
    store.commit([author.step(), author.send()])
    store.commit([stale.step(), author.step()])
    with inner._opened().lend("write") as link:
        assert link.query("select @@wait_timeout", ()).rows == [(86400,)]
        link.begin()
        assert link.query("select @@wait_timeout", ()).rows == [(5,)]
        link.rollback()
        assert link.query("select @@wait_timeout", ()).rows == [(86400,)]
        assert not link._connection.server_status & 1


def test_a_connection_that_the_server_ended_is_replaced(store: Store, mariadb_db: Database) -> None:
    author = author_of(store, "run-1")
    assert mariadb_db.server.cut_connections(mariadb_db.name) >= 2
    batch = [author.step()]
    with pytest.raises(StoreUnavailable):
        store.commit(batch)
    assert store.commit(batch) == [COMMITTED]
