"""When the store fails for good, for a reason nobody knows, whoever waits is told. Nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import perdure


@perdure.step
async def hold(seconds: float) -> None:
    await asyncio.sleep(seconds)


@perdure.workflow
async def holds(seconds: float) -> None:
    await hold(seconds)


def broken(batch: Sequence[Any], *, block: bool = True) -> Any:
    raise ZeroDivisionError("a bug in the store")


@pytest.mark.parametrize("worker", [True, False])
async def test_everybody_who_waits_is_told(tmp_db: str, worker: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with perdure.Engine(tmp_db, [holds], worker=worker, grace=0) as engine:
        run = await engine.start(holds, 30)
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0)
        store: Any = engine._store
        store.commit = broken
        starts = [asyncio.create_task(engine.start(holds, 1)) for _ in range(3)]
        given_up = asyncio.create_task(engine.start(holds, 1))
        await asyncio.sleep(0)
        given_up.cancel()
        for failing in (*starts, waiting):
            with pytest.raises(perdure.StoreError, match="ZeroDivisionError: a bug in the store"):
                await asyncio.wait_for(failing, 40)
        for late in (engine.start(holds, 2), run.result(), run.cancel()):
            with pytest.raises(perdure.StoreError, match="a bug in the store"):
                await asyncio.wait_for(late, 40)
    assert "nothing is written any more" in caplog.text
