"""Stores that have the database of a test open. Which database that is, a folder or a file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from tests.servers.fixtures import Database


@pytest.fixture
def open_more(database: Database) -> Iterator[Callable[[], Store]]:
    """Give a function that opens the database as another process would."""
    opened: list[Store] = []

    def more() -> Store:
        store = open_store(database.url, StoreOptions())
        opened.append(store)
        store.open()
        return store

    yield more
    for store in opened:
        store.close()


@pytest.fixture
def store(open_more: Callable[[], Store]) -> Store:
    """Give a store on the database."""
    return open_more()
