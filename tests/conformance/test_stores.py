"""Every backend under `perdure.testing.conformance`. A backend that is not listed here fails the walk below."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import perdure.store
from perdure.store import base
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SqliteStore
from perdure.testing.conformance import StoreConformance
from tests.servers.fixtures import Database

Request = pytest.FixtureRequest


def memory(request: Request) -> Callable[[], Store]:
    return MemoryStore


def sqlite(request: Request) -> Callable[[], Store]:
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: SqliteStore(folder / "runs.db", StoreOptions())


def postgres(request: Request) -> Callable[[], Store]:
    url: str = request.getfixturevalue("emptied")("postgres").url
    return lambda: open_store(url, StoreOptions())


def mysql(request: Request) -> Callable[[], Store]:
    url: str = request.getfixturevalue("new_store")("mariadb").url
    return lambda: open_store(url, StoreOptions())


BACKENDS: dict[str, Callable[[Request], Callable[[], Store]]] = {
    "memory": memory,
    "mysql": mysql,
    "postgres": postgres,
    "sqlite": sqlite,
}


def backends() -> set[str]:
    found = set()
    for module in iter_modules(perdure.store.__path__):
        opener = getattr(import_module(f"perdure.store.{module.name}"), "open_store", None)
        if opener is not None and opener is not base.open_store:
            found.add(module.name)
    return found


def test_every_backend_in_the_folder_is_under_the_suite() -> None:
    assert backends() == set(BACKENDS)


class TestStores(StoreConformance):
    @pytest.fixture(params=sorted(BACKENDS))
    def make(self, request: Request) -> Callable[[], Store]:
        return BACKENDS[request.param](request)


class TestPostgres18(StoreConformance):
    """The newest PostgreSQL, beside the machine's own."""

    @pytest.fixture
    def make(self, emptied: Callable[[str], Database]) -> Callable[[], Store]:
        url = emptied("postgres18").url
        return lambda: open_store(url, StoreOptions())


class TestOpenedByUrl(StoreConformance):
    """The wrapper that `open_store` puts around a backend keeps the contract too."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: open_store(f"sqlite:///{tmp_path / 'runs.db'}", StoreOptions())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "memory://"])
def test_a_url_without_a_file_names_a_store_in_memory(url: str) -> None:
    store = open_store(url, StoreOptions())
    assert isinstance(store, Instrumented)
    assert store.capabilities.name == "memory"
    assert store.capabilities.inline
