"""Durability `quorum`: what was acknowledged is there when the primary is gone for good."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.store.base import StoreOptions, open_store
from tests.servers.fixtures import Servers
from tests.servers.mariadb import PRIMARY
from tests.servers.succession import assert_nothing_acknowledged_is_lost

QUORUM = StoreOptions(durability="quorum", busy_timeout_s=3.0)


def test_nothing_acknowledged_is_lost_with_the_primary(servers: Servers) -> None:
    primary = servers.mariadb(settings=PRIMARY)
    standby = servers.mariadb_standby(primary)
    name = primary.new_database()
    store = open_store(primary.url(name), QUORUM)
    store.open()
    assert_nothing_acknowledged_is_lost(store, primary, standby, name)


def test_a_primary_that_does_not_wait_is_refused(servers: Servers) -> None:
    server = servers.mariadb(settings={"log_bin": "log", "sync_binlog": 1})
    name = server.new_database()
    for setting, said in (
        ("rpl_semi_sync_master_enabled = off", "semi-synchronous replication is off"),
        ("rpl_semi_sync_master_enabled = on", "rpl_semi_sync_master_wait_point is AFTER_COMMIT"),
        ("rpl_semi_sync_master_wait_point = AFTER_SYNC", "rpl_semi_sync_master_timeout is 10000 ms"),
        ("rpl_semi_sync_master_wait_no_slave = off", "wait_no_slave is OFF"),
    ):
        server.execute(f"set global {setting}")
        with pytest.raises(UsageError, match=said):
            open_store(server.url(name), QUORUM).open()
