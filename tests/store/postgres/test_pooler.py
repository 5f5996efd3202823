"""Behind PgBouncer in transaction mode: two statements of a session may be on two connections to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from perdure.testing.conformance import StoreConformance
from perdure.testing.conformance.claiming import ClaimingContract
from perdure.testing.conformance.creating import CreatingContract
from perdure.testing.conformance.leasing import LeasingContract
from perdure.testing.conformance.purging import PurgingContract
from perdure.testing.conformance.sharing import SharingContract
from perdure.testing.conformance.writing import WritingContract
from tests.servers.fixtures import Database, Servers
from tests.servers.pgbouncer import Pgbouncer


@pytest.fixture(scope="module")
def pooler(shared_servers: Callable[[str], object]) -> Iterator[Pgbouncer]:
    servers = Servers()
    yield servers.pgbouncer(shared_servers("postgres"), settings={"default_pool_size": 3})  # type: ignore[arg-type]
    servers.close()


class Pooled:
    @pytest.fixture
    def make(self, pooler: Pgbouncer, emptied: Callable[[str], Database]) -> Callable[[], Store]:
        url = pooler.url(emptied("postgres").name)
        return lambda: open_store(url, StoreOptions())


class TestThroughAPooler(
    Pooled, WritingContract, CreatingContract, ClaimingContract, LeasingContract, PurgingContract, SharingContract
):
    """What locks rows or tables, or asks for what the server sent by itself."""


@pytest.mark.nightly
class TestAllThroughAPooler(Pooled, StoreConformance):
    """The whole contract."""


def test_nothing_of_a_session_is_left_on_a_connection_of_the_pooler(pooler: Pgbouncer, postgres_db: Database) -> None:
    url = pooler.url(postgres_db.name)
    store = open_store(url, StoreOptions(durability="process"))
    store.open()
    try:
        store.commit([Author("run-1", store.now()).create()])
        assert "pooler" in {fact.name: fact.value for fact in store.stats().facts}["connection"]
    finally:
        store.close()

    with psycopg.connect(url, autocommit=True) as connection:
        for name, expected in (("synchronous_commit", "on"), ("statement_timeout", "0"), ("lock_timeout", "0")):
            row = connection.execute("select current_setting(%s)", (name,)).fetchone()
            assert row == (expected,)
        assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
        assert connection.execute("select count(*) from pg_listening_channels()").fetchone() == (0,)
