"""Databases in which nothing was made yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.fixtures import Database


@pytest.fixture
def url(kind: str, new_database: Callable[[str], Database], tmp_path: Path) -> str:
    """Give the URL of an empty database of a kind."""
    return f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else new_database(kind).url
