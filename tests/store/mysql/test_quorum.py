"""Durability `quorum`: what was acknowledged is there when the primary is gone for good."""

from __future__ import annotations

import threading

import pytest

from perdure.errors import StoreUnavailable, UsageError
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from tests.servers.fixtures import Servers
from tests.servers.mariadb import PRIMARY

pytestmark = pytest.mark.timeout(90)
QUORUM = StoreOptions(durability="quorum", busy_timeout_s=3.0)


def test_nothing_acknowledged_is_lost_with_the_primary(servers: Servers) -> None:
    primary = servers.mariadb(settings=PRIMARY)
    standby = servers.mariadb_standby(primary)
    name = primary.new_database()
    store = open_store(primary.url(name), QUORUM)
    store.open()
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    acknowledged = 2
    ended = threading.Event()

    def write() -> None:
        nonlocal acknowledged
        while not ended.is_set():
            try:
                assert store.commit([author.step()]) == [COMMITTED]
            except StoreUnavailable:
                return
            acknowledged += 1

    writing = threading.Thread(target=write)
    writing.start()
    while acknowledged < 50:
        assert writing.is_alive()
    primary.kill()
    ended.set()
    writing.join(20)
    store.close()
    standby.promote()
    after = open_store(standby.url(name), StoreOptions())
    after.open()
    seqs = [event.seq for event in after.load("run-1")]
    assert seqs == list(range(1, len(seqs) + 1))
    assert acknowledged <= len(seqs) <= acknowledged + 1
    after.close()


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
