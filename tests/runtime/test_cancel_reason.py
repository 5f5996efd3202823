"""Whoever waits for a cancelled run is told why it was cancelled."""

from __future__ import annotations

import asyncio

import pytest

import perdure


@perdure.workflow
async def sleeper() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("begun", [True, False])
async def test_the_reason_of_a_cancel_reaches_who_waits(tmp_db: str, *, begun: bool) -> None:
    async with perdure.Engine(tmp_db, [sleeper]) as engine:
        run = await engine.start(sleeper, delay=None if begun else "1h")
        assert await run.cancel(reason="ordered twice")
        with pytest.raises(perdure.RunCancelled, match="ordered twice") as caught:
            await run.result(timeout=30)
        assert caught.value.reason == "ordered twice"
        assert (await run.info()).detail == "ordered twice"
