"""PostgreSQL itself says which run it is that somebody would bind anew past the program."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from tests.servers.fixtures import Database


def test_a_change_of_the_binding_without_an_upgrade_is_refused_by_name(
    new_database: Callable[[str], Database],
) -> None:
    database = new_database("postgres")
    store = open_store(database.url, StoreOptions())
    store.open()
    store.commit([Author("o-17", store.now()).create(version_id=1, version="1.3.0")])
    store.close()
    with pytest.raises(psycopg.errors.IntegrityError) as refused:
        database.execute("update perdure.run set version_id = 2")
    told = refused.value.diag.message_primary
    assert told == "run o-17 is bound to order@1.3.0; the binding changes only through an upgrade."
