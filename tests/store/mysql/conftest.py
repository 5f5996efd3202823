"""A store on MariaDB, and a look past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from tests.servers.fixtures import Database
from tests.servers.mariadb import Mariadb


@pytest.fixture
def server(mariadb_db: Database) -> Mariadb:
    assert isinstance(mariadb_db.server, Mariadb)
    return mariadb_db.server


@pytest.fixture
def open_more(mariadb_db: Database) -> Iterator[Callable[[], Store]]:
    """Give a function that opens one more store on the test's database, as another process would."""
    opened: list[Store] = []

    def one() -> Store:
        store = open_store(mariadb_db.url, StoreOptions())
        opened.append(store)
        store.open()
        return store

    yield one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_more: Callable[[], Store]) -> Store:
    return open_more()
