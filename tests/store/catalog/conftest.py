"""Stores on every kind of database that has a server or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from tests.servers.fixtures import Database

KINDS = ("sqlite", "postgres", "mariadb")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, new_database: Callable[[str], Database], tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else new_database(kind).url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, StoreOptions())
    store.open()
    yield store
    store.close()
