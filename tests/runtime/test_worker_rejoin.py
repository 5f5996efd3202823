"""A worker that was declared dead loses its runs, and goes on under a new id instead of standing idle for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

import perdure
from perdure.store.instrumented import Instrumented


@perdure.step
async def nothing() -> int:
    return 1


@perdure.workflow
async def short() -> int:
    return await nothing()


@perdure.step
async def endless() -> int:
    await asyncio.sleep(600)
    return 0


@perdure.workflow
async def long() -> int:
    return await endless()


def bury(engine: perdure.Engine) -> None:
    """Make the next heartbeat find its row dead, as after a freeze longer than the lease."""
    store = engine._store
    assert isinstance(store, Instrumented)
    assert engine._worker is not None
    store.heartbeat(engine._worker.id, 0)


async def until_renewed(engine: perdure.Engine, old: str) -> None:
    worker = engine._worker
    assert worker is not None
    async with asyncio.timeout(40):
        while worker.id == old or not worker.lease.holds():
            await asyncio.sleep(0.01)


async def test_a_worker_declared_dead_goes_on_as_a_new_one(tmp_db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with perdure.Engine(tmp_db, [short, long], lease="1s", grace=0) as engine:
        assert engine._worker is not None
        old = engine._worker.id
        held = await engine.start(long)
        bury(engine)
        await until_renewed(engine, old)
        assert await engine.run(short) == 1
        async with asyncio.timeout(40):
            while (await held.info()).owner != engine._worker.id:
                await asyncio.sleep(0.01)
    assert "declared dead" in caplog.text


async def test_closing_ends_every_thread_and_task_also_after_a_death(tmp_db: str) -> None:
    before = threading.active_count()
    async with perdure.Engine(tmp_db, [short], lease="1s") as engine:
        assert engine._worker is not None
        old = engine._worker.id
        await engine.run(short)
        bury(engine)
        await until_renewed(engine, old)
    assert threading.active_count() == before
