"""An engine whose close is cancelled still lets go of everything, only sooner."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from perdure import Engine, Status, step, workflow

if TYPE_CHECKING:
    from pathlib import Path

begun: list[str] = []


@step
async def long_step() -> str:
    begun.append("long_step")
    await asyncio.sleep(60)
    return "long"


@workflow
async def working() -> str:
    return await long_step()


@step
async def closes() -> None:
    await opened[0].close()


opened: list[Engine] = []


@workflow
async def suicidal() -> None:
    await closes()


def engine_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("perdure-")}


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100])
async def test_a_cancelled_close_hands_the_runs_back_and_leaves_no_thread(tmp_path: Path, turns: int) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    begun.clear()
    engine = await Engine(url, [working], grace="1h").open()
    run = await engine.start(working)
    async with asyncio.timeout(40):
        while not begun:
            await asyncio.sleep(0.001)
    assert engine_threads()
    closing = asyncio.create_task(engine.close())
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    closing.cancel()
    async with asyncio.timeout(40):
        with pytest.raises(asyncio.CancelledError):
            await closing
        await engine.close()
    assert engine_threads() == set()
    async with Engine(url, worker=False) as client:
        assert await client.get(run.id).status() == Status.PENDING


async def test_a_second_close_waits_for_the_first(tmp_path: Path) -> None:
    begun.clear()
    engine = await Engine(f"sqlite:///{tmp_path}/c.db", [working], grace="100ms").open()
    await engine.start(working)
    async with asyncio.timeout(40):
        while not begun:
            await asyncio.sleep(0.001)
        first = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        await engine.close()
    assert engine_threads() == set()
    await first


async def test_an_engine_may_be_closed_from_one_of_its_steps(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    engine = await Engine(url, [suicidal], grace="100ms").open()
    opened[:] = [engine]
    run = await engine.start(suicidal)
    async with asyncio.timeout(40):
        while engine_threads():
            await asyncio.sleep(0.01)
    async with Engine(url, worker=False) as client:
        assert await client.get(run.id).status() == Status.PENDING
