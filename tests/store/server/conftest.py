"""A database of each kind of server, and stores that have it open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from tests.servers.fixtures import KINDS, Database


@pytest.fixture(params=KINDS)
def database(new_database: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    """Give an empty database of each kind."""
    return new_database(request.param)


@pytest.fixture
def open_more(database: Database) -> Iterator[Callable[[], Store]]:
    """Give a function that opens the database as another process would."""
    opened: list[Store] = []

    def more() -> Store:
        store = open_store(database.url, StoreOptions())
        store.open()
        opened.append(store)
        return store

    yield more
    for store in opened:
        store.close()
