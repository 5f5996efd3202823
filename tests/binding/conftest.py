"""A project on disk, and databases of every kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.binding.shops import Shop
from tests.servers.fixtures import Database

KINDS = ("sqlite", "postgres", "mariadb")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, new_database: Callable[[str], Database], tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else new_database(kind).url


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # files of one second and one size would be taken for the same
    yield Shop(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
