"""No room left: nothing is lost, nothing is half done, and work goes on once there is room again."""

from __future__ import annotations

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.write import COMMITTED, Write
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from tests.servers.fixtures import Servers

PAYLOAD = b"x" * 2000  # small enough to stand in its row
STEPS = 200


def test_a_full_disk_costs_time_and_nothing_else(servers: Servers) -> None:
    server = servers.mariadb(settings={"innodb_log_file_size": "8M"})
    store = open_store(server.url(server.new_database()), StoreOptions())
    store.open()
    author, other = Author("run-1", store.now()), Author("run-2", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    # No file may grow beyond this, and only that of the log does: to the server that is a disk without room.
    server.limit_files(24 << 20)
    acknowledged, refused = 2, None
    batch: list[Write] = []
    while refused is None:
        batch = [author.step(PAYLOAD) for _ in range(STEPS)]
        try:
            assert store.commit(batch) == [COMMITTED] * STEPS
            acknowledged += STEPS
        except StoreUnavailable as error:
            refused = error
    assert "disk is full" in str(refused)
    assert not refused.unknown
    assert acknowledged > 10 * STEPS
    with pytest.raises(StoreUnavailable):
        store.commit([other.stale().create(), *batch])
    assert store.get("run-2") is None
    assert len(store.load("run-1")) == acknowledged
    server.limit_files(None)
    assert store.commit([other.create(), *batch]) == [COMMITTED] * (1 + STEPS)
    assert len(store.load("run-1")) == acknowledged + STEPS
    store.close()
