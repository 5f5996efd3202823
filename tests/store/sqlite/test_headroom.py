"""Room in the log file: commits write into it, the log is what it was, and nothing is lost where there is no room."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore, headroom
from perdure.store.sqlite.headroom import Headroom
from perdure.testing.author import Author


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, StoreOptions(durability="host"))
    store.open()
    yield store
    store.close()


def log_of(path: Path) -> Path:
    return path.with_name("runs.db-wal")


def lengths(store: SqliteStore, path: Path, author: Author, times: int) -> list[int]:
    """Return how long the log is after each of so many commits."""
    found = []
    for _ in range(times):
        assert store.commit([author.step()]) == [COMMITTED]
        found.append(log_of(path).stat().st_size)
    return found


def running(store: SqliteStore) -> Author:
    author = Author("run-1", store.now())
    assert store.commit([author.create()]) == [COMMITTED]
    assert store.commit([author.claimed("w")]) == [COMMITTED]
    return author


def test_few_commits_make_the_log_longer(store: SqliteStore, path: Path) -> None:
    found = lengths(store, path, running(store), 200)
    assert len(set(found)) < 20
    assert found[-1] < headroom._LONGEST_BYTES


def test_a_commit_looks_at_no_file(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was looked at gets a new time with the next write, for which some file systems make a commit wait."""
    author = running(store)

    looks: list[str] = []

    def noting(name: str, look: Any) -> Any:
        def looking(*given: Any, **options: Any) -> Any:
            looks.append(name)
            return look(*given, **options)

        return looking

    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    outcomes = [store.commit([author.step()]) for _ in range(100)]
    found = list(looks)
    assert outcomes == [[COMMITTED]] * 100
    assert found == []


def test_without_a_wait_for_the_disk_there_is_no_room(path: Path) -> None:
    store = SqliteStore(path, StoreOptions(durability="process"))
    store.open()
    assert len(set(lengths(store, path, running(store), 50))) == 50
    store.close()


def test_a_log_with_room_is_read_as_far_as_it_is_written(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """As after a crash of the machine: somebody opens the two files as they are."""
    author = running(store)
    lengths(store, path, author, 50)
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in (path, log_of(path)):
        shutil.copy(file, crashed / file.name)
    copy = SqliteStore(crashed / "runs.db", StoreOptions(durability="host"))
    copy.open()
    assert [event.seq for event in copy.load("run-1")] == list(range(1, 53))
    assert copy.commit([author.step()]) == [COMMITTED]
    assert copy.problems() == []
    copy.close()


def test_another_process_writes_into_the_same_room(store: SqliteStore, path: Path) -> None:
    author = running(store)
    other = SqliteStore(path, StoreOptions(durability="host"))
    other.open()
    found = set()
    for number in range(100):
        assert (store, other)[number % 2].commit([author.step()]) == [COMMITTED]
        found.add(log_of(path).stat().st_size)
    assert len(found) < 12, "both know of the room that the other has made"
    other.close()
    assert [event.seq for event in store.load("run-1")] == list(range(1, 103))
    assert store.problems() == []


def test_the_log_begins_again_at_the_front(store: SqliteStore, path: Path) -> None:
    author = running(store)
    store._opened().writer.wal_autocheckpoint(20)
    found = lengths(store, path, author, 300)
    assert found[-1] == found[150]
    assert [event.seq for event in store.load("run-1")] == list(range(1, 303))


@pytest.mark.parametrize("written", [0, 100])
def test_where_there_is_no_room_the_log_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    frames = b"x" * (32 + 2 * 536)
    log = tmp_path / "log"
    log.write_bytes(frames)
    room = Headroom(log, 512)

    def full(file: int, data: bytes, place: int) -> int:
        os.lseek(file, place, os.SEEK_SET)
        os.write(file, data[:written])
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    room.keep()
    assert log.read_bytes() == frames
    monkeypatch.undo()
    room.keep()
    assert log.read_bytes() == frames, "it is not tried again"
    room.close()


def test_a_log_that_is_not_there_does_no_harm(tmp_path: Path) -> None:
    room = Headroom(tmp_path / "none", 4096)
    room.keep()
    room.keep()
    room.close()
    assert not list(tmp_path.iterdir())


def test_the_file_is_let_go_with_the_store(path: Path) -> None:
    def handles() -> list[Path]:
        found = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        return [file for file in found if file.readlink() == log_of(path)]

    store = SqliteStore(path, StoreOptions(durability="host"))
    store.open()
    running(store)
    assert handles()
    store._opened().reopen()
    running_on = Author("run-2", store.now())
    assert store.commit([running_on.create()]) == [COMMITTED]
    store.close()
    assert not handles()
    assert apsw.Connection(str(path)).execute("select count(*) from run").fetchall() == [(2,)]
