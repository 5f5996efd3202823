"""What a fleet that has nothing to do costs the database."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import monotonic

import pytest

import perdure
from tests.servers.fixtures import Servers

WORKERS = 20
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"


@perdure.workflow
async def nothing() -> None:
    pass


@pytest.mark.nightly
async def test_an_idle_fleet_of_twenty_asks_less_than_twenty_times_a_second(servers: Servers) -> None:
    server = servers.postgres()
    name = server.new_database()
    async with AsyncExitStack() as fleet:
        for n in range(WORKERS):
            await fleet.enter_async_context(perdure.Engine(server.url(name), [nothing], name=f"w{n}"))
        await asyncio.sleep(12)
        ((before,),), began = server.execute(TRANSACTIONS, [name]), monotonic()
        await asyncio.sleep(30)
        ((after,),), seconds = server.execute(TRANSACTIONS, [name]), monotonic() - began
        rate = (after - before) / seconds
        print(f"{rate:.1f} transactions a second")
        assert 0 < rate < WORKERS
