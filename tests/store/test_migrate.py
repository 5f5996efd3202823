"""Migrations: decided from data, applied whole, recorded with their checksum."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import apsw
import pytest

from perdure.errors import SchemaTooNew, UsageError
from perdure.model.write import COMMITTED
from perdure.store import migrate
from perdure.store.base import StoreOptions
from perdure.store.migrate import Applied, Migration, migrations, pending, script, upgrade
from perdure.store.sqlite import SqliteStore
from perdure.store.sqltext import queries
from perdure.testing.author import Author
from tests.house.tree import ROOT
from tests.process import Spawner

KNOWN = (Migration(1, "one", "pre", "create a"), Migration(2, "two", "post", "create b"))
DONE = [Applied(one.number, one.name, one.checksum) for one in KNOWN]


class FakeSchema:
    def __init__(self, applied: list[Applied] | None) -> None:
        self._applied = applied
        self.done: list[int] = []
        self.workers: list[str] = []

    def live(self) -> list[str]:
        return self.workers

    def applied(self) -> list[Applied] | None:
        return self._applied

    def apply(self, migration: Migration) -> None:
        self.done.append(migration.number)


def test_what_is_not_applied_is_pending_in_order() -> None:
    assert [pending(KNOWN, DONE[:n]) for n in range(3)] == [KNOWN, KNOWN[1:], ()]


def test_a_newer_schema_is_refused() -> None:
    with pytest.raises(SchemaTooNew, match="0003_three"):
        pending(KNOWN, [*DONE, Applied(3, "three", "x")])


def test_a_newer_schema_beside_which_we_may_run_is_none_of_our_business() -> None:
    assert pending(KNOWN, [*DONE, Applied(3, "three_pre", "x")]) == ()
    with pytest.raises(SchemaTooNew, match="0004_four_pre"):
        pending(KNOWN, [*DONE, Applied(3, "three", "x"), Applied(4, "four_pre", "x")])


def test_live_workers_are_not_overrun_by_a_schema_beside_which_they_cannot_run() -> None:
    schema = FakeSchema(DONE[:1])
    schema.workers = ["w1", "w2"]
    with pytest.raises(UsageError, match="w1, w2; stop them first"):
        upgrade(schema, KNOWN, allowed=True)
    assert schema.done == []
    assert upgrade(schema, [*KNOWN[:1], KNOWN[1]._replace(phase="pre")], allowed=True) == 1
    schema.workers = []
    assert upgrade(schema, KNOWN, allowed=True) == 1


@pytest.mark.parametrize("applied", [[DONE[0]._replace(checksum="x")], [DONE[1]], [DONE[0], Applied(3, "three", "x")]])
def test_a_changed_or_missing_migration_is_refused(applied: list[Applied]) -> None:
    with pytest.raises(UsageError, match="differs"):
        pending(KNOWN, applied)


def test_a_changed_migration_is_refused_even_with_newer_ones_behind_it() -> None:
    with pytest.raises(UsageError, match="differs"):
        pending(KNOWN, [DONE[0]._replace(checksum="x"), DONE[1], Applied(3, "three", "x")])


def test_nothing_is_applied_where_it_is_not_allowed() -> None:
    schema = FakeSchema(None)
    with pytest.raises(UsageError, match="lacks migration 0001_one; run `perdure migrate`"):
        upgrade(schema, KNOWN, allowed=False)
    assert schema.done == []
    assert upgrade(schema, KNOWN, allowed=True) == 2
    assert schema.done == [1, 2]


def test_an_up_to_date_schema_needs_no_permission() -> None:
    assert upgrade(FakeSchema(DONE), KNOWN, allowed=False) == 0


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_files_of_a_backend_are_numbered_and_declare_their_phase(backend: str) -> None:
    found = migrations(backend)
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert {one.phase for one in found} <= {"pre", "post"}


@pytest.mark.parametrize(
    "names,text",
    [
        (["0002_x.sql"], "-- phase: pre"),
        (["0001_x.sql", "0003_y.sql"], "-- phase: pre"),
        (["0001_x.sql"], "select 1"),
        (["0001_x.sql", "0002_y.sql", "0003_z.sql"], "-- phase: pre"),
        (["0001_x.sql", "0002_y.sql", "0003_z_pre.sql"], "-- phase: post"),
    ],
)
def test_a_gap_or_a_missing_phase_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], text: str
) -> None:
    folder = tmp_path / "sql" / "fake"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(text)
    monkeypatch.setattr(migrate, "FOLDER", tmp_path / "sql")
    with pytest.raises(ValueError, match="out of order"):
        migrations("fake")


def test_line_ends_do_not_change_a_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sql" / "fake"
    folder.mkdir(parents=True)
    monkeypatch.setattr(migrate, "FOLDER", tmp_path / "sql")
    checksums = set()
    for ends in ("\n", "\r\n"):
        (folder / "0001_x.sql").write_bytes(f"-- phase: pre{ends}select 1;{ends}".encode())
        checksums.add(migrations("fake")[0].checksum)
    assert len(checksums) == 1


@pytest.fixture
def sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of a backend called fake, with one statement of its own beside one that is shared."""
    monkeypatch.setattr("perdure.store.sqltext.FOLDER", tmp_path / "sql")
    folder = tmp_path / "sql" / "fake"
    folder.mkdir(parents=True)
    (folder.parent / "catalog.sql").write_text(
        "-- What all have, is it?\n\n-- c: shared\nselect 1 from perdure.run where id in (?)\n"
    )
    (folder.parent / "queries.sql").write_text("")
    (folder / "queries.sql").write_text("-- a: one\nselect 1;\n\n-- b: two\nselect 2\n")
    (folder / "catalog.sql").write_text("")
    return folder


def test_a_backend_has_the_shared_statements_in_its_own_words(sql: Path) -> None:
    own = {"a": "select 1", "b": "select 2"}
    assert queries("fake") == own | {"c": "select 1 from run where id in (?)"}
    said = queries("fake", schema="s.", one_of="= any(?)")
    assert said == own | {"c": "select 1 from s.run where id = any(?)"}


@pytest.mark.parametrize("name", ["a", "c"])
def test_two_statements_of_one_name_are_an_error(sql: Path, name: str) -> None:
    (sql / "catalog.sql").write_text(f"-- {name}: once more\nselect 2\n")
    with pytest.raises(ValueError, match=f"called {name}"):
        queries("fake")


def dump(path: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute("select type, name, sql from sqlite_schema order by name").fetchall()
    rows += connection.execute("select number, name, checksum from schema_migration").fetchall()
    connection.close()
    return rows


def test_the_printed_script_makes_the_same_schema(tmp_path: Path) -> None:
    by_hand = tmp_path / "by-hand.db"
    connection = apsw.Connection(str(by_hand))
    connection.execute(script("sqlite"))
    connection.close()
    store = SqliteStore(by_hand, StoreOptions(migrate=False))
    store.open()
    assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
    store.close()
    own = SqliteStore(tmp_path / "own.db", StoreOptions())
    own.open()
    own.close()
    assert dump(by_hand) == dump(tmp_path / "own.db")


def test_a_script_can_begin_after_what_is_applied() -> None:
    last = len(migrations("sqlite"))
    assert "create table" not in script("sqlite", after=last)
    assert script("sqlite", after=last) == ""
    assert script("sqlite", after=last - 1).startswith("begin;")


RACER = """
import fcntl, sys
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
store = open_store(sys.argv[1], StoreOptions())
gate = open(sys.argv[3])
print("ready", flush=True)
fcntl.flock(gate, fcntl.LOCK_SH)
store.open()
print(store.commit([Author(sys.argv[2], store.now()).create()]))
store.close()
"""

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@pytest.mark.serial
def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path, spawn: Spawner) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with (tmp_path / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        racers = [spawn.python(RACER, url, f"run-{n}", gate.name, env=PATHS) for n in range(6)]
        for racer in racers:
            racer.expect("ready")
    results = [racer.finish() for racer in racers]
    assert [result.out.count("[Committed()]") for result in results] == [1] * 6, [result.err for result in results]
    store = SqliteStore(tmp_path / "runs.db", StoreOptions())
    store.open()
    assert all(store.get(f"run-{n}") for n in range(6))
    assert len(dump(tmp_path / "runs.db")[-1]) == 3
    store.close()


KILLED = """
import os, sys
from pathlib import Path
from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.session import Session

def attempt(path, target):
    count = 0
    def trace(cursor, statement, bindings):
        nonlocal count
        count += 1
        if count == target:
            os.kill(os.getpid(), 9)
        return True
    begin = Session.begin
    def traced(session, **options):
        session.writer.exec_trace = trace
        begin(session, **options)
    Session.begin = traced
    SqliteStore(path, StoreOptions()).open()
    os._exit(0)

folder, target = Path(sys.argv[1]), 0
while True:
    target += 1
    child = os.fork()
    if child == 0:
        attempt(folder / f"killed-{target}.db", target)
    if os.waitpid(child, 0)[1] == 0:
        break
    print("killed at", target)
"""


@pytest.mark.serial
def test_an_opening_killed_at_any_statement_is_made_good_by_the_next(tmp_path: Path, spawn: Spawner) -> None:
    result = spawn.python(KILLED, str(tmp_path), env=PATHS).finish()
    assert result.code == 0, result.err
    killed = result.out.count("killed at")
    assert killed > 20
    whole = dump(tmp_path / f"killed-{killed + 1}.db")
    for target in range(1, killed + 1):
        path = tmp_path / f"killed-{target}.db"
        store = SqliteStore(path, StoreOptions())
        store.open()
        assert store.commit([Author("run-1", store.now()).create()]) == [COMMITTED]
        store.close()
        assert dump(path) == whole
