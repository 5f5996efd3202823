"""Damage on database servers is found, too; and a sound database has no findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure.errors import SchemaTooNew, UsageError
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from perdure.verify.database import verify
from tests.servers.fixtures import Database
from tests.verify.workload import fill

KINDS = ("postgres", "mariadb")
OPEN_LOG = {
    "postgres": ("alter table event disable trigger all",),
    "mariadb": (
        "drop trigger event_no_update",
        "drop trigger event_no_delete",
        "alter table event drop foreign key event_run_fk",
    ),
}
"""What has to be done before damage can be done."""
# One damage per way the rows come in. The rules themselves are tested on files.
DAMAGE = (
    "delete from event where run_id = 'done' and type = 'timer_fired'",
    "update event set payload = '22' where run_id = 'reopened' and type = 'step_completed'",
    "update event set run_id = 'nobody' where run_id = 'failed'",
    "update run set status = 'failed' where id = 'cancelled'",
    "update run set inbox_n = inbox_n + 1 where id = 'waiting'",
    "delete from tag",
    "update request set run_id = 'pending'",
    "delete from slot",
    "delete from lane",
    "update queue set concurrency = 2 where name = 'limited'",
)
FOUND = {
    ("sequence", "done"), ("chain", "done"), ("chain", "reopened"), ("sequence", "failed"), ("status", "failed"),
    ("status", "cancelled"), ("inbox", "waiting"), ("tags", "done"), ("tombstone", "pending"), ("stray", None),
    ("slot", "owned"), ("lane", "keyed"), ("queue change", None),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, new_database: Callable[[str], Database]) -> Database:
    """Give a database with one of everything."""
    found = new_database(request.param)
    asyncio.run(fill(found.url))
    return found


def test_a_sound_database_has_no_findings_and_every_damage_is_named(database: Database) -> None:
    report = verify(database.url, ["done", "purged", "pending"])
    assert report.findings == []
    assert report.runs == 8
    assert report.events > 30
    for statement in (*OPEN_LOG[database.kind], *DAMAGE):
        execute(database, statement)
    assert {(finding.rule, finding.run_id) for finding in verify(database.url).findings} == FOUND


def execute(database: Database, statement: str) -> None:
    if database.kind == "postgres":
        for word in ("from ", "update ", "table "):
            statement = statement.replace(word, f"{word}perdure.", 1)
    database.execute(statement)


def test_what_a_text_may_hold_is_read_as_it_was_written(new_database: Callable[[str], Database]) -> None:
    database = new_database("postgres")
    store = open_store(database.url, StoreOptions())
    store.open()
    ids = ["a\0b", "a\1b", "a\1\1b", "\1\2", "z"]
    store.commit([Author(run_id, store.now()).create(tags=(("k\0", "v\1"),)) for run_id in ids if run_id != "z"])
    store.commit([Author("z", store.now()).create()])
    store.close()
    report = verify(database.url, ids)
    assert {finding.rule for finding in report.findings} <= {"tags"}  # the author does not write JSON escapes
    assert not [finding for finding in report.findings if finding.rule != "tags"]
    assert report.runs == len(ids)


def test_many_runs_are_read_page_by_page(database: Database) -> None:
    store = open_store(database.url, StoreOptions())
    store.open()
    store.commit([Author(f"n{number:04d}", store.now()).create() for number in range(1200)])
    store.close()
    report = verify(database.url)
    assert report.findings == []
    assert report.runs == 1208


def test_another_schema_is_told_from_ours(new_database: Callable[[str], Database]) -> None:
    for kind in KINDS:
        empty = new_database(kind)
        with pytest.raises(UsageError, match="perdure"):
            verify(empty.url)
        store = open_store(empty.url, StoreOptions())
        store.open()
        store.close()
        schema = "perdure." if kind == "postgres" else ""
        empty.execute(f"insert into {schema}schema_migration values (77, 'future', 'x', 0)")
        with pytest.raises(SchemaTooNew, match="77"):
            verify(empty.url)


def test_a_server_that_is_away_is_told_in_one_line() -> None:
    for url in ("postgresql://127.0.0.1:1/x", "mysql://127.0.0.1:1/x"):
        with pytest.raises(UsageError, match="cannot be read") as caught:
            verify(url)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="verify reads"):
        verify("oracle://x/y")
