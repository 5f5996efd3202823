"""A database of each release of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.fixtures import Database


@pytest.fixture(params=["postgres", "postgres18"])
def database(new_store: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    """Give a database for an empty store, of each release."""
    return new_store(request.param)
