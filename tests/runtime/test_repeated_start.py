"""A start that is repeated while its run goes on leaves that run alone."""

from __future__ import annotations

import asyncio

import pytest

import perdure


@perdure.step
async def add(number: int) -> int:
    return number + 1


@perdure.workflow
async def count(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add(number)
    return number


@pytest.mark.parametrize("memory", [True, False])
async def test_a_run_goes_on_under_repeated_starts(
    tmp_db: str, caplog: pytest.LogCaptureFixture, *, memory: bool
) -> None:
    async with perdure.Engine("sqlite://" if memory else tmp_db, [count]) as engine:
        run = await engine.start(count, 50, id="r")
        waiting = asyncio.create_task(run.result(timeout=30))
        while not waiting.done():
            await engine.start(count, 50, id="r")
        assert await waiting == 50
        claims = [event for event in await run.history() if event.type == perdure.EventType.RUN_CLAIMED]
    assert len(claims) == 1
    assert not caplog.records
