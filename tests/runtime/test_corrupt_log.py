"""A run whose log is damaged is parked with a reason; nothing is guessed from it and nobody tries it for ever."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import perdure


@perdure.step
async def nothing(n: int) -> int:
    return n


@perdure.workflow
async def many() -> int:
    for n in range(40):
        await nothing(n)
    await asyncio.sleep(0.3)
    return 40


async def test_a_run_with_a_damaged_log_is_parked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with perdure.Engine(url, [many], evict_after="10ms") as engine:
        run = await engine.start(many, id="r")
        async with asyncio.timeout(40):
            while await run.status() != perdure.Status.WAITING:
                await asyncio.sleep(0.01)
    with closing(apsw.Connection(str(tmp_path / "test.db"))) as connection:
        connection.execute("drop trigger event_log_no_update")
        connection.execute("update event_log set payload = x'37' where seq = 9")
    async with perdure.Engine(url, [many]) as engine:
        with pytest.raises(perdure.RunParked, match="corrupt: event 9"):
            await engine.get("r").result(timeout=30)
        info = await engine.get("r").info()
        assert info.status == perdure.Status.PARKED
        assert "corrupt" in str(info.detail)
        assert info.owner is None
