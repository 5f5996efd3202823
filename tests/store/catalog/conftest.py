"""Stores on every kind of database that has a server or a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.store.base import Store, StoreOptions, open_store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, StoreOptions())
    store.open()
    yield store
    store.close()
