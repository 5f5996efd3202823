"""What `perdure doctor` finds of the rights of a worker's user."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.model.filter import Fact
from perdure.store.base import StoreOptions, open_store
from tests.servers.fixtures import Database
from tests.servers.mariadb import Mariadb

SEE = "see the page on MySQL and MariaDB"


@pytest.fixture
def lacking(mariadb_db: Database, server: Mariadb) -> Iterator[Callable[..., Fact]]:
    """Give what returns what is found of a user who was given rights by these statements."""
    store = open_store(mariadb_db.url, StoreOptions())
    store.open()
    store.close()

    def rights(*grants: str) -> Fact:
        server.execute("create or replace user lacking@'127.0.0.1' identified by 'secret'")
        for grant in grants:
            server.execute(grant.format(db=mariadb_db.name, user="lacking@'127.0.0.1'"))
        store = open_store(mariadb_db.url.replace("perdure@", "lacking:secret@"), StoreOptions(read_only=True))
        store.open()
        try:
            (fact,) = [fact for fact in store.stats().facts if fact.name == "rights"]
        finally:
            store.close()
        return fact

    yield rights
    server.execute("drop user lacking@'127.0.0.1'")
    server.execute("drop role if exists helping")


def test_what_a_user_lacks_is_named(lacking: Callable[..., Fact]) -> None:
    """One right that the page lists for workers is not there, or only on some tables."""
    given = {"select", "insert", "update", "delete"}
    for right in given - {"select"}:  # who may not read cannot look either
        fact = lacking(f"grant {', '.join(given - {right})} on {{db}}.* to {{user}}")
        assert fact == Fact("rights", "some are missing", f"the user lacks {right.upper()}: {SEE}")
    some = "grant select, insert, update on {db}.* to {user}", "grant delete on {db}.tag to {user}"
    problem = lacking(*some).problem
    assert "DELETE on run, " in problem
    assert "on tag" not in problem
    assert "UPDATE" not in problem


def test_a_server_that_takes_no_writes_is_not_asked(lacking: Callable[..., Fact], server: Mariadb) -> None:
    server.execute("set global read_only = 1")
    try:
        fact = lacking("grant select on {db}.* to {user}")
    finally:
        server.execute("set global read_only = 0")
    assert fact == Fact("rights", "not known: the server takes no writes")


def test_rights_by_pattern_or_by_role_are_there_all_the_same(lacking: Callable[..., Fact]) -> None:
    allowed = Fact("rights", "all that are needed")
    assert lacking("grant select, insert, update, delete on `test_%`.* to {user}") == allowed
    role = "grant select, insert, update, delete on {db}.* to helping"
    given = "grant select on {db}.* to {user}", "create or replace role helping", role, "grant helping to {user}"
    assert lacking(*given).problem == f"the user lacks INSERT, UPDATE, DELETE: {SEE}"
    assert lacking(*given, "set default role helping for {user}") == allowed
