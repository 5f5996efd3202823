"""What a guard builds SQL from: names are checked, values never become text."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from perdure import InvalidValue, UsageError, guard
from perdure.guard.statement import quoted


@pytest.mark.parametrize(
    "name", ["orders; drop table orders", 'o"', "o`", "", "1x", "a.b.", "or ders", "?", "%s", ":v"]
)
def test_a_name_that_is_none_never_reaches_the_database(name: str) -> None:
    for dialect in ("sqlite", "postgresql", "mysql"):
        with pytest.raises(UsageError, match="not the name"):
            quoted(name, dialect)


def test_a_name_may_be_a_word_of_the_language_or_have_a_schema() -> None:
    assert quoted("order", "postgresql") == '"order"'
    assert quoted("shop.order", "mysql") == "`shop`.`order`"
    assert quoted("größe", "sqlite") == "`größe`"


def test_on_sqlite_a_column_that_is_not_there_is_an_error_and_not_a_text() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table orders (id integer primary key, state text)")
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            guard.change(connection, "orders", {"id": 1}, before={"stte": "a"}, after={"stte": "b"})


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_the_schema_can_be_printed(dialect: str) -> None:
    assert guard.schema(dialect).startswith("create table if not exists perdure_guard (")
    with pytest.raises(InvalidValue, match="no dialect 'oracle'"):
        guard.schema("oracle")


@pytest.mark.parametrize("request_id", ["", "a\x00b", "a\nb", "\ud800", "x" * 2001, "ä" * 1001, 7])
def test_an_id_that_cannot_be_a_key_is_refused(request_id: str) -> None:
    with pytest.raises(InvalidValue, match="a request id"):
        guard.once(None, request_id)


def test_what_is_no_connection_is_refused() -> None:
    for thing in (None, "sqlite:///app.db", object()):
        with pytest.raises(UsageError, match=r"cannot use .* as a connection"), guard.once(thing, "req-1"):
            pass


def test_a_connection_that_commits_by_itself_is_refused() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        guard.create_table(connection)
        with pytest.raises(UsageError, match="commits each statement"), guard.once(connection, "req-1"):
            pass


def test_without_an_id_a_step_is_needed() -> None:
    with pytest.raises(UsageError, match="used outside a step"):
        guard.once(None)
