"""A primary that is killed while it is written to, and the standby that takes its place."""

from __future__ import annotations

import threading

from perdure.errors import StoreUnavailable
from perdure.model.write import COMMITTED
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

STEPS = 50


def assert_nothing_acknowledged_is_lost(
    store: Store, primary: Postgres | Mariadb, standby: Postgres | Mariadb, database: str
) -> None:
    """Write until the primary is killed, promote the standby, and look for what was acknowledged."""
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
    while acknowledged < STEPS:
        assert writing.is_alive()
    primary.kill()
    ended.set()
    writing.join(20)
    store.close()
    standby.promote()
    after = open_store(standby.url(database), StoreOptions())
    after.open()
    seqs = [event.seq for event in after.load("run-1")]
    after.close()
    assert seqs == list(range(1, len(seqs) + 1))
    assert acknowledged <= len(seqs) <= acknowledged + 1
