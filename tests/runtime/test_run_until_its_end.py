"""`engine.run` waits from the start to the end in one go: whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import perdure

release = asyncio.Event()


@perdure.step
async def held() -> str:
    await release.wait()
    return "let go"


@perdure.workflow
async def holds() -> str:
    return await held()


@perdure.workflow
async def adds(a: int, b: int) -> int:
    return a + b


@perdure.workflow
async def fails() -> None:
    raise ValueError("no")


@pytest.fixture(autouse=True)
def _closed_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.release", asyncio.Event())


async def held_run(engine: perdure.Engine) -> tuple[asyncio.Task[str], str]:
    """Give the task of somebody who waits, and the id of the run."""
    waiting = asyncio.create_task(engine.run(holds, id="held"))
    async with asyncio.timeout(30):
        while (await listed(engine)) != ["held"]:
            await asyncio.sleep(0.01)
    return waiting, "held"


async def listed(engine: perdure.Engine) -> list[str]:
    return [info.id async for info in engine.list()]


async def test_giving_up_the_wait_leaves_the_run_and_nobody_who_waits(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [holds], grace=0) as engine:
        waiting, run_id = await held_run(engine)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert engine.connection.waiters._futures == {}
        release.set()
        assert await engine.get(run_id).result(timeout=30) == "let go"


async def test_a_repeat_attaches_to_the_run_that_is_there(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [holds, adds], grace=0) as engine:
        waiting, run_id = await held_run(engine)
        again = asyncio.create_task(engine.run(holds, id=run_id))
        waiters = engine.connection.waiters._futures
        while len(waiters[run_id]) < 2:
            await asyncio.sleep(0.01)
        release.set()
        assert list(await asyncio.gather(waiting, again)) == ["let go"] * 2
        assert await engine.run(holds, id=run_id) == "let go", "and to one that has ended"
        with pytest.raises(perdure.IdConflict):
            await engine.run(adds, 1, 2, id=run_id)


async def test_arguments_and_options_are_told_apart_and_failures_are_raised(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [adds, fails], grace=0) as engine:
        assert await engine.run(adds, 1, b=2, tags={"kind": "sum"}) == 3
        assert [info.tags async for info in engine.list(tag={"kind": "sum"})] == [{"kind": "sum"}]
        with pytest.raises(perdure.RunFailed, match="no"):
            await engine.run(fails)
        with pytest.raises(perdure.UsageError):
            await engine.run(adds, 1, c=2)


async def test_a_client_waits_for_a_run_that_another_process_executes(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [adds], worker=False) as client:
        waiting = asyncio.create_task(client.run(adds, 1, 2))
        while not await listed(client):
            await asyncio.sleep(0.01)
        assert not waiting.done()
        async with perdure.Engine(tmp_db, [adds], poll="20ms", grace=0):
            assert await asyncio.wait_for(waiting, 30) == 3


async def test_more_runs_than_there_is_room_for_all_end(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [adds], concurrency=3, grace=0) as engine:
        assert await asyncio.gather(*(engine.run(adds, n, n) for n in range(40))) == [2 * n for n in range(40)]
        assert engine.connection.waiters._futures == {}


async def test_whoever_waits_as_the_engine_closes_is_told(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [holds], grace=0) as engine:
        waiting, _ = await held_run(engine)
    with pytest.raises(perdure.PerdureError):
        await asyncio.wait_for(waiting, 10)


async def test_whoever_waits_as_the_store_breaks_is_told(tmp_db: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(batch: Sequence[Any], *, block: bool = True) -> Any:
        raise ZeroDivisionError("a bug in the store")

    async with perdure.Engine(tmp_db, [holds, adds], grace=0) as engine:
        waiting, _ = await held_run(engine)
        store: Any = engine._store
        store.commit = broken
        late = asyncio.create_task(engine.run(adds, 1, 2))
        for one in (waiting, late):
            with pytest.raises(perdure.StoreError, match="a bug in the store"):
                await asyncio.wait_for(one, 10)
