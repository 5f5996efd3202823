"""Stored versions are read once by a worker, however often it looks for runs that need them."""

from __future__ import annotations

from math import inf

import pytest

import perdure
from perdure.runtime.services.hosting import Hosting
from tests.binding.shops import Shop, client, publish

LOOKS = 5


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_worker_reads_a_version_once_however_often_it_looks(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    async with client(url) as engine:
        await engine.start("order", id="before")
    async with perdure.Engine(url, [shop.deploy("v2", "1.1.0")], max_hosts=0, poll="9s") as engine:
        with pytest.raises(perdure.RunParked):
            await engine.get("before").result(timeout="60s")
        assert engine._worker is not None
        (hosting,) = [service for service in engine._worker._services if isinstance(service, Hosting)]
        before = engine.stats().definitions
        for _ in range(LOOKS):
            hosting._looked_at = -inf
            await hosting.tick()
        counters: dict[str, float] = engine.connection.store.counters()  # type: ignore[attr-defined]
        assert (counters["definition_calls"], counters["release_calls"]) == (1, 1)
        after = engine.stats().definitions
        assert after.misses == before.misses == 2
        assert after.hits - before.hits >= 2 * LOOKS  # the version, and the release it is part of
