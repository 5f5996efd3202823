"""A database of each kind of server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.fixtures import KINDS, Database, Servers
from tests.servers.proxy import Proxy


@pytest.fixture(params=KINDS)
def database(new_store: Callable[[str], Database], request: pytest.FixtureRequest) -> Database:
    """Give a database for an empty store, of each kind."""
    return new_store(request.param)


@pytest.fixture
def proxy(servers: Servers, database: Database) -> Proxy:
    """Give what connections to that database can be cut and frozen by."""
    return servers.proxy(database.server)
