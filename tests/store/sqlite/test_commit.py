"""Commits: waiting for others, the second look, a COMMIT whose end is not known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from perdure.errors import StoreCorrupt, StoreUnavailable
from perdure.model.claim import ClaimRequest
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED, Closed, Conflict, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.batch import fetch
from perdure.store.sqlite.session import Session
from perdure.testing.author import Author, claims_for, worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}", StoreOptions(busy_timeout_s=0.05))
    store.open()
    yield store
    store.close()


@pytest.fixture
def blocker(store: Store, path: Path) -> Iterator[apsw.Connection]:
    """Another process's connection, in the middle of a write."""
    connection = apsw.Connection(str(path))
    connection.execute("begin immediate")
    yield connection
    connection.close()


def session_of(store: Store) -> Session:
    assert isinstance(store, Instrumented)
    assert isinstance(store.inner, SqliteStore)
    return store.inner._opened()


def running(store: Store, run_id: str = "run-1") -> Author:
    author = Author(run_id, store.now())
    assert store.commit([author.create(), author.claimed()]) == [COMMITTED] * 2
    return author


def test_a_commit_that_may_not_wait_does_nothing_while_another_writes(store: Store, blocker: apsw.Connection) -> None:
    create = Author("run-1", store.now()).create()
    assert store.commit([create], block=False) is None
    blocker.execute("rollback")
    assert store.get("run-1") is None
    assert store.commit([create], block=False) == [COMMITTED]


def test_a_commit_that_may_not_wait_does_not_wait_for_another_thread(store: Store) -> None:
    session = session_of(store)
    session.acquire(block=True)
    assert store.commit([Author("run-1", store.now()).create()], block=False) is None
    assert isinstance(store.change_count(), int)
    session.release()
    assert store.commit([Author("run-1", store.now()).create()], block=False) == [COMMITTED]


def test_a_lock_held_too_long_is_an_error_that_says_nothing_was_done(store: Store, blocker: apsw.Connection) -> None:
    create = Author("run-1", store.now()).create()
    for call in (lambda: store.commit([create]), lambda: store.heartbeat("w1", 1)):
        with pytest.raises(StoreUnavailable, match=r"held the database.s lock") as caught:
            call()
        assert not caught.value.unknown
    blocker.execute("rollback")
    assert store.commit([create]) == [COMMITTED]


def test_a_commit_waits_for_a_lock_that_is_given_back(path: Path) -> None:
    store = open_store(f"sqlite:///{path}", StoreOptions(busy_timeout_s=10))
    store.open()
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    session = session_of(store)
    waiting = threading.Event()
    wait = session._wait

    def watched(earlier: int) -> bool:
        waiting.set()
        return wait(earlier)

    session.writer.set_busy_handler(watched)
    outcomes: list[object] = []
    thread = threading.Thread(
        target=lambda: outcomes.extend(store.commit([Author("run-1", store.now()).create()]) or [])
    )
    thread.start()
    assert waiting.wait(10)
    other.execute("rollback")
    thread.join()
    other.close()
    store.close()
    assert outcomes == [COMMITTED]


def test_reads_do_not_wait_for_a_writer(store: Store, path: Path) -> None:
    author = running(store)
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    other.execute("update run set detail = 'not yet'")
    assert len(store.load("run-1")) == 2
    assert [row.detail for row in store.list(RunFilter())] == [None]
    other.execute("rollback")
    other.close()
    assert store.commit([author.step()]) == [COMMITTED]


def test_a_read_keeps_no_snapshot_open(store: Store, path: Path) -> None:
    author = running(store)
    for _ in range(5):
        store.commit([author.step(b"x" * 10_000, events=20)])
        store.load("run-1", 0, 1)
        store.list(RunFilter(limit=1))
        store.get("run-1")
        store.stats()
    total, moved = session_of(store).writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert total == moved > 0


def test_statistics_are_of_one_moment(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted as due may be claimed before it is looked at again."""
    author = Author("run-1", store.now())
    assert store.commit([author.create()]) == [COMMITTED]

    def claimed_meanwhile(connection: apsw.Connection, name: str, *values: str | int) -> list[tuple[object, ...]]:
        if name == "count_due":
            assert store.commit([author.claimed("w")]) == [COMMITTED]
        return fetch(connection, name, *values)

    monkeypatch.setattr("perdure.store.sqlite.listing.fetch", claimed_meanwhile)
    (waiting,) = store.stats().waiting
    assert (waiting.workflow, waiting.due) == ("order", 1)
    monkeypatch.undo()
    assert store.stats().waiting == ()


def test_the_log_file_is_used_again_when_the_last_reader_is_gone(store: Store, path: Path) -> None:
    author = running(store)
    session_of(store).writer.wal_autocheckpoint(50)
    log = path.with_name("runs.db-wal")

    def write(times: int) -> int:
        for _ in range(times):
            store.commit([author.step(b"x" * 10_000, events=10)])
        return log.stat().st_size

    settled = write(20)
    reader = apsw.Connection(str(path))
    reader.execute("begin")
    reader.execute("select count(*) from run").fetchall()
    grown = write(20)
    assert grown > settled * 3, "a reader keeps the log from being used again"
    reader.execute("rollback")
    reader.close()
    assert write(40) <= grown + 500_000


@pytest.mark.parametrize(
    "statement", ["update event_log set payload = null", "delete from event_log", "delete from event"]
)
def test_the_database_itself_refuses_to_rewrite_the_log(store: Store, path: Path, statement: str) -> None:
    running(store)
    other = apsw.Connection(str(path))
    with pytest.raises(apsw.Error, match=r"append-only|view"):
        other.execute(statement)
    other.close()
    assert len(store.load("run-1")) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "update event_log set payload = x'00' where seq = 3",
        "update event_log set at = at + 1 where seq = 3",
        "update event_log set seq = 9 where seq = 3",
        "delete from event_log where seq = 3",
        "delete from event_log where seq = 1",
        "update event_log set chain = x'00' where seq = 2",
    ],
)
def test_a_log_that_was_tampered_with_is_not_read(store: Store, path: Path, statement: str) -> None:
    author = running(store)
    other = running(store, "run-2")
    store.commit([author.step(events=4)])
    tamper = apsw.Connection(str(path))
    tamper.execute("drop trigger event_log_no_update; drop trigger event_log_no_delete")
    tamper.execute(statement + " and run_no = 1")
    tamper.close()
    with pytest.raises(StoreCorrupt, match=r"event . of the log is damaged or missing.*'run-1'"):
        store.load("run-1")
    assert len(store.load("run-2")) == 2
    assert store.commit([other.step()]) == [COMMITTED]


class LostCommit:
    """A connection whose next COMMIT ends in an error of the disk, before or after it is done."""

    def __init__(self, store: Store, *, done: bool) -> None:
        self.hits = 0
        self.done = done
        session = session_of(store)
        self.inner = session.writer
        session.writer = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def execute(self, statement: str, *values: object) -> object:
        if statement != "commit":
            return self.inner.execute(statement, *values)  # type: ignore[arg-type]
        self.hits += 1
        self.inner.execute("commit" if self.done else "rollback")
        raise apsw.IOError


def batches(author: Author, other: Author) -> dict[str, list[Write]]:
    return {
        "append": [author.stale().step()],
        "change": [author.stale().completed()],
        "create": [Author("run-3", author.at).create()],
        "send": [author.send()],
        "mixed": [author.send(), author.stale().step(), Author("run-4", author.at).create()],
        "purge": [other.purge()],
    }


@pytest.mark.parametrize("kind", ["append", "change", "create", "send", "mixed", "purge"])
def test_a_commit_that_failed_but_happened_is_found(store: Store, kind: str) -> None:
    author, other = running(store, "run-1"), running(store, "run-2")
    store.commit([other.completed()])
    batch = batches(author, other)[kind]
    lost = LostCommit(store, done=True)
    assert store.commit(batch) == [COMMITTED] * len(batch)
    assert lost.hits == 1
    assert store.commit([author.stale().step()]) in ([COMMITTED], [Conflict(3)])


@pytest.mark.parametrize("kind", ["append", "change", "create", "mixed", "purge"])
def test_a_commit_that_failed_and_did_not_happen_is_known_not_to(store: Store, kind: str) -> None:
    author, other = running(store, "run-1"), running(store, "run-2")
    store.commit([other.completed()])
    batch = batches(author, other)[kind]
    lost = LostCommit(store, done=False)
    with pytest.raises(StoreUnavailable, match="nothing was recorded") as caught:
        store.commit(batch)
    assert lost.hits == 1
    assert not caught.value.unknown
    assert store.commit(batch) == [COMMITTED] * len(batch)


def test_what_was_rolled_back_is_not_taken_for_recorded(store: Store) -> None:
    author = running(store)
    lost, behind = author.step(), author.step()
    LostCommit(store, done=False)
    with pytest.raises(StoreUnavailable):
        store.commit([lost])
    assert store.commit([behind]) == [Conflict(2)], "it would leave a hole"
    poison = replace(lost, events=(lost.events[0]._replace(digest=2**64),))
    other = running(store, "run-2")
    outcomes = store.commit([other.step(), poison])
    assert outcomes is not None
    assert outcomes[1] != COMMITTED
    assert store.commit([behind]) == [Conflict(2)]
    assert store.commit([lost, behind]) == [COMMITTED] * 2


def test_a_lone_message_that_is_not_found_may_have_been_taken_in(store: Store) -> None:
    author = running(store)
    LostCommit(store, done=False)
    with pytest.raises(StoreUnavailable, match="not known") as caught:
        store.commit([author.send()])
    assert caught.value.unknown


def test_refused_writes_are_no_evidence(store: Store) -> None:
    author = running(store)
    rival = author.stale()
    store.commit([author.step(), author.completed()])
    LostCommit(store, done=True)
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([rival.step(), author.send()])
    assert caught.value.unknown
    assert store.commit([rival.stale().step(), author.send()]) == [Conflict(4), Closed("completed")]


@pytest.mark.parametrize("done", [True, False])
def test_a_claim_whose_commit_failed_is_looked_up(store: Store, *, done: bool) -> None:
    store.commit([Author("run-1", store.now()).create()])
    store.register(worker("w1", store.now()))
    request = ClaimRequest("w1", ("default",), ("0 order",), 5)
    LostCommit(store, done=done)
    if done:
        claims = store.claim(request, claims_for("w1"))
        assert claims is not None
        assert [one.row.id for one in claims.taken] == ["run-1"]
    else:
        with pytest.raises(StoreUnavailable, match="nothing was recorded"):
            store.claim(request, claims_for("w1"))
    assert len(store.owned("w1")) == done


def test_when_the_file_cannot_be_opened_again_it_is_unknown_and_tried_again_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = running(store)
    step = author.step()
    connect = Session.connect

    def refuse(_: Session) -> None:
        raise apsw.CantOpenError

    LostCommit(store, done=False)
    monkeypatch.setattr(Session, "connect", refuse)
    with pytest.raises(StoreUnavailable) as caught:
        store.commit([step])
    assert caught.value.unknown
    for call in (lambda: store.commit([step]), lambda: store.load("run-1")):
        with pytest.raises(StoreUnavailable):
            call()
    monkeypatch.setattr(Session, "connect", connect)
    assert len(store.load("run-1")) == 2
    assert store.commit([step]) == [COMMITTED]
