"""The time limit of a whole run, where it meets other options."""

from __future__ import annotations

import asyncio

import pytest

import perdure


@perdure.step
async def slow() -> None:
    await asyncio.sleep(5)


@perdure.workflow
async def takes_long() -> None:
    await slow()


async def test_a_run_whose_time_is_over_cannot_be_retried(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [takes_long]) as engine:
        run = await engine.start(takes_long, id="late", timeout="100ms")
        with pytest.raises(perdure.RunTimedOut):
            await run.result(timeout=30)
        with pytest.raises(perdure.UsageError, match=r"its time was over.*another id"):
            await engine.retry("late")


@pytest.mark.parametrize("delay, timeout", [("2s", "1s"), (None, 0)])
async def test_a_run_that_could_never_begin_in_time_is_refused(tmp_db: str, delay: str | None, timeout: object) -> None:
    async with perdure.Engine(tmp_db, [takes_long], worker=False) as engine:
        with pytest.raises(perdure.InvalidValue, match="must be longer than delay"):
            await engine.start(takes_long, id="never", delay=delay, timeout=timeout)  # type: ignore[call-overload]
        assert [info async for info in engine.list()] == []
