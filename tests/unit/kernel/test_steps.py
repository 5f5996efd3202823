"""Steps that store no arguments or no result, and errors a future cannot carry, through a whole engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.model.status import EventType

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


async def history(workflow: Any, *args: Any) -> tuple[Any, list[perdure.Event]]:
    async with perdure.Engine(f"memory://{workflow.name}", [workflow]) as engine:
        handle = await engine.start(workflow, *args)
        return await handle.result("15s"), await handle.history()


@perdure.step(store_input=False)
async def secret(token: str) -> int:
    return len(token)


@perdure.workflow
async def keeps_a_secret() -> int:
    return await secret("hidden")


async def test_arguments_need_not_be_recorded() -> None:
    result, log = await history(keeps_a_secret)
    assert result == 6
    (event,) = [event for event in log if event.type == EventType.STEP_COMPLETED]
    assert event.input is None
    assert event.result == 6


@perdure.step(durability="none", retry=perdure.Retry(attempts=3, initial="1ms"))
async def unsteady(failures: int) -> int:
    CALLS.append("unsteady")
    if len(CALLS) <= failures:
        raise ValueError(f"call {len(CALLS)}")
    return len(CALLS)


@perdure.workflow
async def tries(failures: int) -> str:
    try:
        return f"result {await unsteady(failures)}"
    except ValueError as error:
        return f"error {error}"


@pytest.mark.parametrize(
    "failures, answer", [(0, "result 1"), (1, "result 2"), (2, "result 3"), (3, "error call 3"), (9, "error call 3")]
)
async def test_a_step_that_is_not_recorded_is_tried_as_often_as_any_other(failures: int, answer: str) -> None:
    result, log = await history(tries, failures)
    assert result == answer
    assert not [event for event in log if event.kind == "step"]


@perdure.step
async def stops() -> None:
    raise StopIteration


@perdure.workflow
async def meets_a_stop() -> str:
    try:
        await stops()
    except RuntimeError as error:
        return str(error)
    return "nothing"


async def test_a_stop_iteration_reaches_the_body_as_an_error() -> None:
    assert "StopIteration" in (await history(meets_a_stop))[0]


@perdure.step
async def gives_itself_up() -> None:
    raise asyncio.CancelledError


@perdure.workflow
async def is_not_cancelled() -> str:
    try:
        await gives_itself_up()
    except RuntimeError as error:
        return str(error)
    return "nothing"


async def test_a_step_that_cancels_itself_has_failed() -> None:
    assert "although nobody had cancelled it" in (await history(is_not_cancelled))[0]


@perdure.step
async def slow() -> None:
    CALLS.append("begun")
    await asyncio.sleep(30)


@perdure.step(durability="none")
async def slow_and_unrecorded() -> None:
    CALLS.append("begun")
    await asyncio.sleep(30)


@perdure.workflow
async def gives_up_at_once(recorded: bool) -> int:
    task = asyncio.create_task((slow if recorded else slow_and_unrecorded)())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return len(CALLS)


@perdure.workflow
async def gives_up_soon(recorded: bool) -> bool:
    try:
        await asyncio.wait_for((slow if recorded else slow_and_unrecorded)(), 0.05)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_step_that_is_given_up_does_not_hold_up_the_run(recorded: bool) -> None:
    assert (await history(gives_up_at_once, recorded))[0] in (0, 1)
    if recorded:
        result, log = await history(gives_up_soon, recorded)
        assert result
        assert [event.type for event in log if event.kind == "step"] == [EventType.STEP_CANCELLED]
