"""What a backend answers to calls that nobody should make, and to facts that should not be."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from perdure.errors import StoreCorrupt, StoreError, UsageError
from perdure.model.claim import ClaimRequest, Claims
from perdure.model.write import COMMITTED
from perdure.store import tails
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.sqlite import clock
from perdure.testing.author import Author, claims_for, worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    url = "memory://odd" if request.param == "memory" else f"sqlite:///{path}"
    store = open_store(url, StoreOptions())
    store.open()
    yield store
    store.close()


def request(limit: int = 10) -> ClaimRequest:
    return ClaimRequest("w1", ("default",), ("0 order",), limit)


def taken(store: Store, limit: int = 10) -> int:
    claims = store.claim(request(limit), claims_for("w1"))
    assert claims is not None
    return len(claims.taken)


def test_a_durability_that_memory_cannot_give_is_refused() -> None:
    with pytest.raises(UsageError, match="gives no durability 'quorum'"):
        open_store("memory://x", StoreOptions(durability="quorum"))


@pytest.mark.parametrize(
    "url", ["base://x", "writer://x", "migrate://x", "://", "sqlite", "http://[::1", "no such://x"]
)
def test_what_is_no_database_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"no backend|not a database URL"):
        open_store(url, StoreOptions())


def test_a_claim_of_none_gives_none(store: Store) -> None:
    store.register(worker("w1", store.now()))
    assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
    assert taken(store, limit=0) == 0
    assert taken(store) == 1


def test_a_claim_that_does_not_fit_its_run_changes_nothing(store: Store) -> None:
    store.register(worker("w1", store.now()))
    author = Author("run-1", store.now())
    assert store.commit([author.create()]) == [COMMITTED]
    decide = claims_for("w1")

    def misfit(row: Any, recent: Any, now: int) -> Any:
        claimed = decide(row, recent, now)
        change = claimed.append.change
        assert change is not None
        return replace(claimed, append=replace(claimed.append, change=replace(change, epoch_before=99)))

    before = store.load("run-1")
    if store.capabilities.name == "memory":  # which cannot be damaged: the mistake is the caller's
        with pytest.raises(StoreError, match="does not fit the run it was made for"):
            store.claim(request(), misfit)
        assert len((store.claim(request(), decide) or Claims([])).taken) == 1
    else:  # a damaged run is passed over, so that it keeps no other from being claimed
        assert store.claim(request(), misfit) == Claims([])
    assert len(store.load("run-1")) == len(before) + (store.capabilities.name == "memory")


def test_a_run_without_a_log_is_passed_over(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(f"sqlite:///{path}", StoreOptions())
    store.open()
    store.register(worker("w1", store.now()))
    assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
    connection = apsw.Connection(str(path))
    connection.execute("drop trigger event_log_no_delete")
    connection.execute("delete from event_log")
    connection.close()
    store.close()
    store.open()  # what was known of the log is forgotten
    assert taken(store) == 0
    assert "its log cannot be read" in caplog.text
    store.close()


def test_memory_that_is_busy_is_not_waited_for_where_that_was_asked() -> None:
    store = open_store("memory://busy", StoreOptions())
    store.open()
    held, done = threading.Event(), threading.Event()
    inner: Any = store
    lock = inner.inner._lock

    def hold() -> None:
        with lock:
            held.set()
            done.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    write = Author("run-1", store.now()).create()
    assert store.commit([write], block=False) is None
    done.set()
    thread.join()
    assert store.commit([write], block=False) == [COMMITTED]
    store.close()


def test_a_machine_without_a_boot_id_is_told_apart_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not clock.this_machine().boot_id.startswith("node-")

    def missing(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert clock.this_machine().boot_id.startswith("node-")
    assert clock.this_machine().boot_id == clock.this_machine().boot_id


@pytest.fixture
def three(path: Path) -> Iterator[Store]:
    """A store with a run of three events, whose triggers that guard the log are gone."""
    store = open_store(f"sqlite:///{path}", StoreOptions())
    store.open()
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w1"), author.step()]) == [COMMITTED] * 3
    connection = apsw.Connection(str(path))
    connection.execute("drop trigger event_log_no_delete; drop trigger event_log_no_update")
    connection.close()
    yield store
    store.close()


def test_a_log_is_not_read_past_its_damage(three: Store, path: Path) -> None:
    assert [event.seq for event in three.load("run-1", 2)] == [3]
    connection = apsw.Connection(str(path))
    connection.execute("delete from event_log where seq = 2")
    connection.close()
    with pytest.raises(StoreCorrupt, match="of the log is damaged or missing"):
        three.load("run-1", 2)


def test_what_is_known_of_tails_is_bounded(three: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_TAILS", 2)
    authors = [Author(f"more-{n}", three.now()) for n in range(5)]
    for author in authors:
        assert three.commit([author.create(), author.claimed("w1")]) == [COMMITTED] * 2
    assert three.commit([author.step() for author in authors]) == [COMMITTED] * 5


@pytest.mark.parametrize("denied, complaint", [(os.R_OK, "not readable by this user"), (os.W_OK, "read-only for this")])
def test_rights_are_checked_before_a_file_is_touched(
    path: Path, monkeypatch: pytest.MonkeyPatch, denied: int, complaint: str
) -> None:
    path.touch(0o600)
    monkeypatch.setattr(os, "access", lambda place, mode: not mode & denied or Path(place) != path)
    with pytest.raises(UsageError, match=complaint):
        open_store(f"sqlite:///{path}", StoreOptions()).open()
    assert path.read_bytes() == b""


def test_a_folder_that_cannot_be_written_to_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != path.parent)
    with pytest.raises(UsageError, match="is not writable"):
        open_store(f"sqlite:///{path}", StoreOptions()).open()
    assert list(path.parent.iterdir()) == []
