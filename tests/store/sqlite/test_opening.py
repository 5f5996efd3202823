"""Opening a file: what SQLite must give, what is refused, and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest

from perdure.errors import SchemaTooNew, StoreUnavailable, UsageError
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.store.sqlite import SqliteStore, engine
from perdure.store.sqlite.clock import Machine, this_machine
from perdure.store.sqlite.session import Session
from perdure.testing.author import Author, worker
from tests.process import Spawner


def opened(path: Path, options: StoreOptions | None = None, machine: Machine | None = None) -> SqliteStore:
    store = SqliteStore(path, options or StoreOptions(), machine)
    store.open()
    return store


def refusal(path: Path, options: StoreOptions | None = None, machine: Machine | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        opened(path, options, machine)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pragma(store: SqliteStore, name: str) -> object:
    return store._opened().writer.pragma(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_a_new_file_and_its_log_are_for_the_owner_only(path: Path) -> None:
    store = opened(path)
    store.commit([Author("run-1", store.now()).create()])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}


def test_closing_leaves_one_file(path: Path) -> None:
    store = opened(path)
    store.commit([Author("run-1", store.now()).create()])
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


@pytest.mark.parametrize("mode,synchronous", [("host", 2), ("process", 1)])
def test_a_durability_mode_is_what_sqlite_says_it_does(path: Path, mode: str, synchronous: int) -> None:
    store = opened(path, StoreOptions(durability=mode))
    assert pragma(store, "synchronous") == synchronous
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "foreign_keys") == 1
    assert pragma(store, "trusted_schema") == 0
    assert pragma(store, "mmap_size") == 0
    store.close()


@pytest.mark.parametrize("mode", ["quorum", "memory", "", "HOST"])
def test_a_durability_mode_that_sqlite_cannot_give_is_refused(path: Path, mode: str) -> None:
    assert "durability" in refusal(path, StoreOptions(durability=mode))
    assert not path.exists()


def test_a_setting_that_sqlite_does_not_take_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.store.sqlite.session._CACHE_KIB", 2**40)
    assert "SQLite gives cache_size" in refusal(path)
    assert list(path.parent.iterdir()) == []


def test_an_old_sqlite_is_refused_unless_it_is_vouched_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.40.1", "3.51.2", "3.9.0"):
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda version=version: version)
        assert f"SQLite {version}" in refusal(path)
    assert not path.exists()
    opened(path, StoreOptions(trust_sqlite=True)).close()
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    opened(path).close()


@pytest.mark.parametrize("content", [b"hello", b"x" * 100, os.urandom(8192), b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "not an SQLite database" in refusal(path)
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    store = opened(path)
    assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
    store.close()


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("create table worker (id integer)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    opened(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("insert into schema_migration values (99, 'later', 'x', 0)")
    connection.close()
    before = path.read_bytes()
    for options in (StoreOptions(), StoreOptions(read_only=True), StoreOptions(migrate=False)):
        with pytest.raises(SchemaTooNew, match="0099_later"):
            opened(path, options)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


def test_a_missing_schema_is_refused_where_migration_is_off(path: Path) -> None:
    assert "perdure migrate" in refusal(path, StoreOptions(migrate=False))
    assert list(path.parent.iterdir()) == []


def test_an_opening_that_fails_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise apsw.FullError

    monkeypatch.setattr("perdure.store.sqlite.schema.join", fail)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        open_store(f"sqlite:///{path}", StoreOptions()).open()
    assert list(path.parent.iterdir()) == []


def test_a_failed_opening_does_not_take_a_file_away_that_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    monkeypatch.setattr("perdure.store.sqlite.schema.join", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        opened(path)
    assert path.exists()


def test_a_failed_opening_does_not_take_a_file_away_that_another_uses(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SqliteStore(path, StoreOptions())

    def fail(session: Session) -> None:
        session.connect = lambda: None  # type: ignore[method-assign]
        monkeypatch.undo()
        engine._opening.release()
        other.open()
        engine._opening.acquire()
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "connect", fail)
    with pytest.raises(ZeroDivisionError):
        opened(path)
    assert other.commit([Author("run-1", other.now()).create()]) == [COMMITTED]
    other.close()
    store = opened(path)
    assert store.get("run-1") is not None
    store.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Session.connect

    def replace(session: Session) -> None:
        connect(session)
        monkeypatch.undo()
        for file in path.parent.iterdir():
            file.unlink()

    monkeypatch.setattr(Session, "connect", replace)
    store = opened(path)
    store.commit([Author("run-1", store.now()).create()])
    store.close()
    again = opened(path)
    assert again.get("run-1") is not None
    again.close()


def test_a_read_only_handle_reads_and_does_not_write(path: Path) -> None:
    store = opened(path)
    author = Author("run-1", store.now())
    store.commit([author.create()])
    reader = open_store(f"sqlite:///{path}", StoreOptions(read_only=True))
    reader.open()
    assert reader.get("run-1") == store.get("run-1")
    with pytest.raises(UsageError, match="cannot be written"):
        reader.commit([author.step()])
    reader.close()
    store.close()


@pytest.mark.parametrize("kind", ["removed", "replaced"])
def test_a_file_that_goes_away_while_in_use_is_noticed_with_the_next_heartbeat(path: Path, kind: str) -> None:
    store = opened(path)
    store.register(worker("w1", store.now()))
    assert store.heartbeat("w1", 1_000_000).alive
    path.rename(path.with_name("moved.db"))
    if kind == "replaced":
        path.write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        store.heartbeat("w1", 1_000_000)
    path.with_name("moved.db").rename(path)
    assert store.heartbeat("w1", 1_000_000).alive
    store.close()


MACHINE = this_machine()


def test_a_file_in_use_on_another_machine_is_refused(path: Path) -> None:
    here = opened(path)
    here.register(worker("w1", here.now()))
    there = Machine("other boot", "other host", MACHINE.wall, MACHINE.ticks)
    assert "in use by worker 'w1' on host" in refusal(path, machine=there)
    here.heartbeat("w1", 60_000_000)
    here.close()


def test_a_file_that_another_machine_took_is_written_no_more(path: Path) -> None:
    here = opened(path)
    there = opened(path, machine=Machine("other boot", "other host", MACHINE.wall, MACHINE.ticks))
    with pytest.raises(UsageError, match="in use on another machine"):
        here.commit([Author("run-1", here.now()).create()])
    assert there.commit([Author("run-1", there.now()).create()]) == [COMMITTED]
    here.close()
    there.close()


def test_after_a_reboot_the_workers_of_before_are_dead_at_once(path: Path) -> None:
    before = opened(path)
    author = Author("run-1", before.now())
    before.register(worker("w1", before.now())._replace(host=MACHINE.host))
    before.commit([author.create(), author.claimed("w1")])
    before.close()
    after = opened(path, machine=MACHINE._replace(boot_id="next boot"))
    assert [worker.state for worker in after.stats().workers] == ["dead"]
    after.close()


FORKED = """
import os, sys
from perdure.errors import UsageError
from perdure.store.base import StoreOptions, open_store
from perdure.model.filter import RunFilter
from perdure.testing.author import Author
store = open_store(sys.argv[1], StoreOptions())
store.open()
author = Author("run-1", store.now())
store.commit([author.create()])
step = author.step()
child = os.fork()
if child == 0:
    for call in (lambda: store.commit([step]), lambda: store.list(RunFilter()), store.sweep, store.change_count):
        try:
            call()
        except UsageError as error:
            print("refused:", error)
    own = open_store(sys.argv[1], StoreOptions())
    own.open()
    print("own:", len(own.load("run-1")), own.commit([step]))
    own.close()
    store.close()
    del store
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for _ in range(3):
    print("parent:", store.commit([author.step()]))
store.close()
"""


def test_a_child_of_fork_is_refused_and_does_no_harm(path: Path, spawn: Spawner) -> None:
    result = spawn.python(FORKED, f"sqlite:///{path}").finish()
    assert result.code == 0, result.err
    assert result.out.count("refused: the store was opened before a fork") == 4
    assert "own: 1 [Committed()]" in result.out
    assert result.out.count("parent: [Committed()]") == 3
    store = opened(path)
    assert [event.seq for event in store.load("run-1")] == [1, 2, 3, 4, 5]
    store.close()


def test_this_package_never_opens_a_database_file_itself() -> None:
    folder = Path(engine.__file__).parent
    opens = {
        file.name: file.read_text("utf-8").count(word)
        for file in folder.glob("*.py")
        for word in ("os.open(", '.open("', "open(file", "read_bytes(")
        if word in file.read_text("utf-8")
    }
    # One exclusive creation, before SQLite knows the file; and the log, on which no lock of SQLite's stands.
    assert opens == {"birth.py": 1, "headroom.py": 1}
