"""A store on MariaDB, and a look past it."""

from __future__ import annotations

import pytest

from tests.servers.fixtures import Database
from tests.servers.mariadb import Mariadb


@pytest.fixture
def server(mariadb_db: Database) -> Mariadb:
    assert isinstance(mariadb_db.server, Mariadb)
    return mariadb_db.server


@pytest.fixture
def database(mariadb_db: Database) -> Database:
    """Give the database that `store` and `open_more` open."""
    return mariadb_db
