"""Durability `quorum`: what was acknowledged is there when the primary is gone for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.write import COMMITTED
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from tests.servers.fixtures import Servers
from tests.servers.postgres import Postgres
from tests.servers.succession import assert_nothing_acknowledged_is_lost

QUORUM = StoreOptions(durability="quorum", busy_timeout_s=1.5)


@pytest.fixture
def pair(servers: Servers) -> tuple[Postgres, Postgres]:
    primary = servers.postgres()
    return primary, servers.standby(primary)


@pytest.fixture
def store(pair: tuple[Postgres, Postgres]) -> Iterator[Store]:
    store = open_store(pair[0].url(), QUORUM)
    store.open()
    yield store
    store.close()


def test_nothing_acknowledged_is_lost_with_the_primary(pair: tuple[Postgres, Postgres], store: Store) -> None:
    assert_nothing_acknowledged_is_lost(store, *pair, "postgres")


def test_a_wait_for_the_standby_that_is_cut_short_is_no_confirmation(
    pair: tuple[Postgres, Postgres], store: Store
) -> None:
    """The server warns and confirms; it has the commit, the standby has not. Asking again must wait, too."""
    primary, standby = pair
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    standby.pause()
    step = author.step()
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as caught:
                store.commit([step])
            assert caught.value.unknown
        assert primary.execute("select count(*) from perdure.event") == [(3,)]
    finally:
        standby.resume()
    assert store.commit([step]) == [COMMITTED]
    assert len(store.load("run-1")) == 3
