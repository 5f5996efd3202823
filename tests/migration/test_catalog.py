"""A database of the schema before the catalog gets it, with what is in it; half a migration is done again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import perdure.store
from perdure.model.run import RunRow
from perdure.store import migrate
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from perdure.testing.conformance.publishing import publish
from perdure.verify.database import verify
from tests.servers.fixtures import Database

NUMBER = "0004"


def opened(url: str) -> Store:
    store = open_store(url, StoreOptions())
    store.open()
    return store


def test_a_database_of_the_schema_before_goes_on_with_its_runs(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(perdure.store.__file__).parent / "sql", tmp_path / "sql")
    for file in (tmp_path / "sql").glob("*/[0-9]*.sql"):
        if file.name >= NUMBER:
            file.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "FOLDER", tmp_path / "sql")
        store = opened(url)
        store.commit([Author("old", store.now()).create(version="1.0.0")])
        store.close()
    store = opened(url)
    row = store.get("old")
    assert isinstance(row, RunRow)
    assert (row.version_id, row.workflow_version) == (0, "1.0.0")
    assert (store.catalog.count(), store.catalog.workflows()) == (0, [])
    assert publish(store.catalog, "v1", "1.0.0")[0].version_id == 1
    store.close()
    assert {finding.rule for finding in verify(url).findings} <= {"tags"}


def test_a_migration_that_was_cut_off_is_done_again(mariadb_db: Database) -> None:
    store = opened(mariadb_db.url)
    publish(store.catalog, "v1", "1.0.0")
    store.close()
    mariadb_db.execute(f"delete from schema_migration where number >= {int(NUMBER)}")
    mariadb_db.execute("drop table route")
    mariadb_db.execute("drop trigger version_change_no_delete")
    store = opened(mariadb_db.url)
    assert publish(store.catalog, "v1", "1.0.0")[0].version_id == 1
    assert store.catalog.shelf("order").routes == {}
    store.close()
    assert mariadb_db.execute("show triggers like 'version_change'")[1][0] == "version_change_no_delete"
