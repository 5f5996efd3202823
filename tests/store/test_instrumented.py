"""The wrapper of every backend: errors are translated in one place, calls are counted."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.errors import StoreCorrupt, StoreError, StoreUnavailable, UsageError
from perdure.model.filter import RunFilter
from perdure.store.base import StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.fault import ENVIRONMENT, translate
from perdure.testing.author import Author, worker


@pytest.mark.parametrize(
    "error,expected",
    [
        (apsw.BusyError(), StoreUnavailable),
        (apsw.FullError(), StoreUnavailable),
        (apsw.IOError(), StoreUnavailable),
        (apsw.CantOpenError(), StoreUnavailable),
        (apsw.CorruptError(), StoreCorrupt),
        (apsw.NotADBError(), StoreCorrupt),
        (apsw.ReadOnlyError(), UsageError),
        (apsw.ConstraintError(), StoreError),
        (apsw.SQLError(), StoreError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), StoreCorrupt),
    ],
)
def test_a_driver_error_becomes_one_of_ours_with_its_cause(error: Exception, expected: type[Exception]) -> None:
    class Broken(MemoryStore):
        def sweep(self) -> list[str]:
            raise error

        def commit(self, *_: object, **__: object) -> None:
            raise error

    store = Instrumented(Broken(), translate)
    for call in (store.sweep, lambda: store.commit([])):
        with pytest.raises(expected) as caught:
            call()
        assert type(caught.value) is expected
        assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [LookupError("x"), StoreUnavailable("y", unknown=True), KeyboardInterrupt()])
def test_other_errors_pass_as_they_are(error: BaseException) -> None:
    class Broken(MemoryStore):
        def sweep(self) -> list[str]:
            raise error

    with pytest.raises(type(error)) as caught:
        Instrumented(Broken(), translate).sweep()
    assert caught.value is error


def test_every_error_that_blames_no_write_has_a_translation() -> None:
    for kind in ENVIRONMENT:
        if issubclass(kind, apsw.Error):
            assert type(translate(kind())) is not StoreError or kind is apsw.InternalError


def test_calls_writes_and_seconds_are_counted(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}", StoreOptions())
    assert isinstance(store, Instrumented)
    store.open()
    store.register(worker("w1", store.now()))
    author = Author("run-1", store.now())
    store.commit([author.create(), author.step()])
    store.commit([])
    store.list(RunFilter())
    store.list(RunFilter())
    counters = store.counters()
    store.close()
    assert {name: counters[name] for name in ("commit_calls", "commit_writes", "register_calls", "list_calls")} == {
        "commit_calls": 2,
        "commit_writes": 2,
        "register_calls": 1,
        "list_calls": 2,
    }
    assert counters["commit_seconds"] > 0
    assert counters["list_seconds"] > 0


def test_a_commit_that_would_wait_is_counted_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    store = open_store(url, StoreOptions())
    assert isinstance(store, Instrumented)
    store.open()
    other = apsw.Connection(str(tmp_path / "runs.db"))
    other.execute("begin immediate")
    assert store.commit([Author("run-1", store.now()).create()], block=False) is None
    other.execute("rollback")
    other.close()
    assert store.counters()["commit_busy"] == 1
    assert store.counters()["commit_writes"] == 0
    store.close()
