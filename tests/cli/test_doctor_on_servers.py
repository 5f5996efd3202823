"""``doctor`` on database servers: what it shows, and what it calls wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.cli import main as cli
from perdure.store.base import StoreOptions, open_store
from perdure.store.mysql import facts as mysql
from perdure.store.postgres import facts as postgres
from perdure.testing.author import Author
from tests.servers.fixtures import Database

SHOWN = {
    "postgres": {"postgresql", "connection", "durability", "schema", "rights", "size", "oldest snapshot",
                 "transaction ids", "connections"},
    "mariadb": {"mariadb", "durability", "schema", "largest value", "connections", "rights", "table run",
                "table event", "oldest transaction", "undo history"},
}  # fmt: skip


@pytest.fixture(params=sorted(SHOWN))
def database(request: pytest.FixtureRequest, new_database: Callable[[str], Database]) -> Database:
    found = new_database(request.param)
    store = open_store(found.url, StoreOptions())
    store.open()
    store.commit([Author("one", store.now()).create()])
    store.close()
    return found


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], list[str]]:
    code = cli.run(["doctor", "--db", url, "--json"])
    found = json.loads(capsys.readouterr().out)
    return code, {fact["name"]: fact for fact in found["health"]["facts"]}, found["problems"]


def test_doctor_shows_what_the_server_really_is(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    _, facts, _ = doctor(database.url, capsys)
    assert set(facts) >= SHOWN[database.kind]
    assert not [fact for fact in facts.values() if fact["problem"]]


def leave_behind(database: Database, rows: int) -> None:
    """Make so many old versions of rows."""
    connection: Any = database.server.connect(database.name)
    with connection:
        cursor = connection.cursor()
        if database.kind == "postgres":
            cursor.execute(
                "insert into perdure.tag (key, value, run_id) select 'a', n::text, 'one' from generate_series(1, %s) n",
                (rows,),
            )
            cursor.execute("delete from perdure.tag")
            cursor.execute("select pg_stat_force_next_flush()")  # else it is told up to a second later
            connection.commit()
            return
        for _ in range(rows):
            cursor.execute("update run set updated_at = updated_at + 1")
            connection.commit()


def test_doctor_names_old_versions_of_rows_that_pile_up(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody can remove any more, because somebody holds an old snapshot, is made here in earnest."""
    name, enough = "size", postgres.MUCH_DEAD
    with database.old_snapshot():
        _, facts, _ = doctor(database.url, capsys)
        if database.kind == "mariadb":
            name, enough = "undo history", 300
            there = int(facts[name]["value"].replace(",", ""))
            monkeypatch.setattr(mysql, "LONG_HISTORY", there + enough)  # the real one takes minutes
        assert not facts[name]["problem"]
        leave_behind(database, enough // 2)
        assert not doctor(database.url, capsys)[1][name]["problem"]
        leave_behind(database, enough)
        code, facts, problems = doctor(database.url, capsys)
    assert code == 1
    assert facts[name]["problem"]
    assert ("in tag:" in facts[name]["problem"]) == (database.kind == "postgres")
    assert any(problem.startswith(name) for problem in problems)


def test_doctor_names_a_transaction_that_was_left_open(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_OLD_S", -1)
    monkeypatch.setattr(mysql, "_OLD_S", -1)
    with database.old_snapshot():
        code, facts, problems = doctor(database.url, capsys)
    assert code == 1
    name = "oldest snapshot" if database.kind == "postgres" else "oldest transaction"
    assert facts[name]["problem"]
    assert any(name in problem for problem in problems)


def test_doctor_names_what_bounds_the_size_of_values_and_what_is_old(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_OLD_XIDS", 1)
    monkeypatch.setattr(mysql, "_LITTLE_PACKET", 1 << 40)
    code, facts, _ = doctor(database.url, capsys)
    assert code == 1
    assert facts["transaction ids" if database.kind == "postgres" else "largest value"]["problem"]
