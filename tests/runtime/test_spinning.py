"""A body that never waits is parked with a reason, wherever it begins to spin; so is one that the engine trips over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.kernel.execution import Execution
from perdure.model.event import Event
from perdure.model.status import EventType


@perdure.step
async def recorded() -> int:
    return 1


@perdure.step(durability="none")
async def unrecorded() -> int:
    return 1


@perdure.workflow
async def spins(after: str) -> None:
    if after == "a step":
        await recorded()
    elif after == "a step that is not recorded":
        await unrecorded()
    elif after == "a timer":
        await asyncio.sleep(0.001)
    while True:
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", ["the start", "a step", "a step that is not recorded", "a timer"])
async def test_a_body_that_never_waits_is_parked(tmp_db: str, after: str) -> None:
    async with perdure.Engine(tmp_db, [spins]) as engine:
        run = await engine.start(spins, after)
        with pytest.raises(perdure.RunParked, match="runs without end and never waits"):
            await run.result("10s")


@perdure.workflow
async def fine() -> int:
    return await recorded()


async def test_an_error_of_the_engine_parks_the_run_and_asks_for_a_report(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settle = Execution.settle

    def broken(execution: Execution, event: Event) -> None:
        if event.type == EventType.STEP_COMPLETED:
            raise ZeroDivisionError("a bug")
        settle(execution, event)

    monkeypatch.setattr(Execution, "settle", broken)
    async with perdure.Engine(tmp_db, [fine], poll="20ms") as engine:
        run = await engine.start(fine)
        with pytest.raises(perdure.RunParked, match="internal error: ZeroDivisionError: a bug"):
            await run.result("10s")
        monkeypatch.undo()
        await engine.retry(run.id)
        assert await run.result("10s") == 1
    assert "internal error" in caplog.text


@perdure.workflow
def marks() -> list[Any]:
    perdure.publish("stage", 1)
    perdure.checkpoint("half")
    return [recorded.blocking(), perdure.now().year > 2000]


async def test_a_sync_body_marks_its_log_and_goes_on(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [marks]) as engine:
        run = await engine.start(marks)
        assert await run.result("10s") == [1, True]
        assert await run.value("stage") == 1
        kinds = [event.type for event in await run.history() if event.op]
    assert kinds == [EventType.VALUE_PUBLISHED, EventType.CHECKPOINT_REACHED, EventType.STEP_COMPLETED]
