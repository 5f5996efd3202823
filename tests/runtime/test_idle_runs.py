"""A run is idle only while nothing of it is under way: an attempt that a timer began makes it active again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from perdure import Engine, Retry, Status, step, step_info, workflow

if TYPE_CHECKING:
    from pathlib import Path

begun: list[int] = []
SOON = Retry(attempts=3, initial="20ms", factor=1.0, jitter=False)


@step(retry=SOON)
async def slow_the_second_time() -> int:
    number = step_info().attempt
    begun.append(number)
    if number == 1:
        text = "once more"
        raise ValueError(text)
    await asyncio.sleep(0.4)
    return number


@workflow
async def patient() -> int:
    return await slow_the_second_time()


@pytest.mark.parametrize("limit", [None, "1h"])
async def test_a_later_attempt_that_is_longer_than_an_idle_run_may_stay_is_not_evicted(
    tmp_path: Path, limit: str | None
) -> None:
    async with Engine(f"sqlite:///{tmp_path}/i.db", [patient], evict_after="50ms", poll="50ms", hint="10ms") as engine:
        run = await engine.start(patient, timeout=limit)
        assert await run.result(timeout=30) == 2
        events = [event.type for event in await run.history()]
    assert events == ["run_started", "run_claimed", "step_attempt_failed", "step_completed", "run_completed"]


async def test_a_worker_that_stops_lets_a_later_attempt_end(tmp_path: Path) -> None:
    begun.clear()
    url = f"sqlite:///{tmp_path}/i.db"
    async with Engine(url, [patient], grace="5s") as engine:
        run = await engine.start(patient)
        async with asyncio.timeout(40):
            while 2 not in begun:
                await asyncio.sleep(0.01)
    async with Engine(url, [patient]) as engine:
        assert await engine.get(run.id).result(timeout=30) == 2
        assert await engine.get(run.id).status() == Status.COMPLETED
        completed = [event for event in await engine.get(run.id).history() if event.type == "step_completed"]
    assert [event.epoch for event in completed] == [1]
