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


def kind_of(database: Database) -> str:
    return "postgres" if database.url.startswith("postgres") else "mariadb"


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], list[str]]:
    code = cli.run(["doctor", "--db", url, "--json"])
    found = json.loads(capsys.readouterr().out)
    return code, {fact["name"]: fact for fact in found["health"]["facts"]}, found["problems"]


def test_doctor_shows_what_the_server_really_is(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    _, facts, _ = doctor(database.url, capsys)
    assert set(facts) >= SHOWN[kind_of(database)]
    assert not [fact for fact in facts.values() if fact["problem"]]


def test_doctor_names_a_transaction_that_was_left_open(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_OLD_S", -1)
    monkeypatch.setattr(mysql, "_OLD_S", -1)
    connection: Any = database.server.connect(database.name)
    with connection:
        if kind_of(database) == "postgres":
            connection.execute("begin isolation level repeatable read")
            connection.execute("select count(*) from perdure.run")
        else:
            with connection.cursor() as cursor:
                cursor.execute("start transaction with consistent snapshot")
                cursor.execute("select count(*) from run")
        code, facts, problems = doctor(database.url, capsys)
        connection.rollback()
    assert code == 1
    name = "oldest snapshot" if kind_of(database) == "postgres" else "oldest transaction"
    assert facts[name]["problem"]
    assert any(name in problem for problem in problems)


def test_doctor_names_what_bounds_the_size_of_values_and_what_is_old(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_OLD_XIDS", 1)
    monkeypatch.setattr(mysql, "_LITTLE_PACKET", 1 << 40)
    code, facts, _ = doctor(database.url, capsys)
    assert code == 1
    assert facts["transaction ids" if kind_of(database) == "postgres" else "largest value"]["problem"]
