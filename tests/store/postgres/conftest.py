"""A database of each release of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.fixtures import Database


@pytest.fixture(params=["postgres", "postgres18"])
def database(new_database: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    """Give an empty database of each release."""
    return new_database(request.param)
