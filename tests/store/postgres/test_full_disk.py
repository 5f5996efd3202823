"""No room for the server's log: it stops, and is started by hand. Nothing is lost, and work goes on with room."""

from __future__ import annotations

import asyncio
import secrets

import pytest

import perdure
from tests.servers.fixtures import Servers

SEGMENT = 16 << 20
STEPS = 20


@perdure.step
async def fill(number: int) -> str:
    return f"{number} {secrets.token_hex(50_000)}"


@perdure.workflow
async def filling() -> int:
    return len({await fill(number) for number in range(STEPS)})


@pytest.mark.nightly
async def test_a_full_disk_of_the_log_costs_time_and_nothing_else(servers: Servers) -> None:
    server = servers.postgres(settings={"wal_compression": "off", "max_connections": 30})
    url = server.url(server.new_database())
    async with perdure.Engine(url, [filling], lease=2.0) as engine:
        first = await engine.start(filling, id="first")
        assert await first.result(timeout=60) == STEPS
        # The next segment of the log cannot be made; all that are there can be written.
        server.limit_files(SEGMENT - 1)
        starting = asyncio.gather(*(engine.start(filling, id=f"run-{n}") for n in range(12)))
        await asyncio.to_thread(server.await_end)  # it starts again by itself, and has no room for that either
        said = server.log
        await asyncio.to_thread(server.start)
        runs = await starting
        assert [await run.result(timeout=90) for run in runs] == [STEPS] * 12
        for run in [first, *runs]:
            events = await run.history()
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert [event.type for event in events].count("step_completed") == STEPS
    assert "PANIC" in said
    assert "File too large" in said
