"""The same data on a database server: it is found sound, and damage is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure.cli import main
from perdure.errors import SchemaTooNew, UsageError
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from perdure.verify import server
from perdure.verify.database import verify
from tests.servers.fixtures import KINDS, Database
from tests.verify.workload import fill

BURY = (
    "insert into perdure.request select id, workflow, 0, 'completed', 0, null, null from perdure.run where id = 'done'"
)
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=KINDS)
def database(new_database: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    return new_database(request.param)


def change(database: Database, statement: str) -> None:
    """Execute a statement on our tables, past the triggers that keep the log."""
    if database.url.startswith("mysql"):
        for trigger in ("event_no_update", "event_no_delete"):
            database.execute(f"drop trigger if exists {trigger}")
        database.execute(statement.replace("perdure.", ""))
        return
    with database.server.connect(database.name) as connection, connection.cursor() as cursor:
        cursor.execute("set session_replication_role = replica")
        cursor.execute(statement)


def test_a_sound_database_has_no_findings(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_FACTS_AT_ONCE", 3)
    monkeypatch.setattr(server, "_RUNS_AT_ONCE", 2)
    asyncio.run(fill(database.url))
    report = verify(database.url, ["done", "purged", "pending"])
    assert report.findings == []
    assert report.runs == 6
    assert report.events > 30
    assert main.run(["verify", "--db", database.url]) == 0


@pytest.mark.parametrize(
    "statement,rules",
    [
        ("delete from perdure.event where run_id = 'done' and type = 'timer_fired'", {"sequence", "chain"}),
        ("delete from perdure.event where run_id = 'failed'", {"sequence", "status"}),
        ("update perdure.event set payload = 'x' where run_id = 'done' and seq = 3", {"chain"}),
        ("update perdure.run set status = 'failed' where id = 'done'", {"status"}),
        (BURY, {"tombstone"}),
        ("delete from perdure.tag", {"tags"}),
    ],
)  # fmt: skip
def test_damage_is_found(database: Database, statement: str, rules: set[str]) -> None:
    asyncio.run(fill(database.url))
    change(database, statement)
    assert {finding.rule for finding in verify(database.url).findings} == rules
    assert main.run(["verify", "--db", database.url]) == 1


def test_texts_of_every_kind_are_read_as_they_were_written(database: Database) -> None:
    store = open_store(database.url, StoreOptions())
    store.open()
    ids = ["a\0b", "\1", "\1\2", "a ", "é'\\", "\U0001f600"]
    for run_id in ids:
        author = Author(run_id, store.now())
        assert store.commit([author.create(tags=((run_id, run_id),)), author.claimed("w")]) == [COMMITTED] * 2
    store.close()
    report = verify(database.url, ids)
    assert report.runs == len(ids)
    assert {finding.rule for finding in report.findings} <= {"owner"}  # what the test's author leaves out


def test_what_cannot_be_read_says_why(database: Database) -> None:
    with pytest.raises(UsageError, match="not a database of perdure"):
        verify(database.url)
    with pytest.raises(UsageError, match="cannot be read"):
        verify(database.url.replace("/test_", "/nosuch_"))
    with pytest.raises(UsageError, match="verify reads"):
        verify("memory://")
    store = open_store(database.url, StoreOptions())
    store.open()
    store.close()
    change(database, "insert into perdure.schema_migration values (9999, 'later', 'x', 0)")
    with pytest.raises(SchemaTooNew):
        verify(database.url)
