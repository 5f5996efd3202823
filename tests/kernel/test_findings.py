"""What the random programs have found, each as a program of its own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import perdure
from perdure.model.status import EventType
from tests.kernel.group_programs import limits_around_aborted_groups
from tests.kernel.replay import check_everywhere, record
from tests.kernel.steps import add, ahead, once, peek
from tests.kernel.world import result


@perdure.workflow
async def gives_up_at_once() -> str:
    """The step's task is made and cancelled before its first turn."""
    task = asyncio.ensure_future(add(1, 1))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.gather(task, return_exceptions=True)
    return "done"


@perdure.workflow
async def gives_up_what_has_an_intent() -> str:
    task = asyncio.ensure_future(once(1))
    await add(1, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return "done"


@pytest.mark.parametrize("workflow", [gives_up_at_once, gives_up_what_has_an_intent])
@pytest.mark.parametrize("seed", range(12))
def test_a_step_given_up_before_its_first_turn_does_not_hold_the_run(
    workflow: perdure.Workflow[..., Any], seed: int
) -> None:
    original = check_everywhere(workflow, seed, settled=False)
    assert result(original.log[-1]) == ("completed", "done")


@perdure.workflow
async def raises_in_a_callback() -> int:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    future.set_result(1)
    loop.call_later(1, future.set_result, 2)
    await asyncio.sleep(2)
    return await add(1, 1)


def test_an_error_in_a_callback_is_told_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "perdure.run"):
        world = record(raises_in_a_callback)
    assert result(world.log[-1]) == ("completed", 2)
    assert "InvalidStateError" in caplog.text


@perdure.workflow
async def unrecorded_race() -> list[int]:
    return [await future for future in asyncio.as_completed([peek(n) for n in range(6)])]


@pytest.mark.parametrize("seed", range(6))
def test_unrecorded_steps_are_answered_in_the_order_they_were_asked_for(seed: int) -> None:
    world = record(unrecorded_race, seed)
    assert result(world.log[-1]) == ("completed", [1, 2, 3, 4, 5, 6])


@perdure.workflow
async def unrecorded_behind_ahead() -> list[int]:
    async def left() -> int:
        return await ahead(1) + await peek(1)

    return list(await asyncio.gather(left(), add(1, 1), add(2, 2), peek(5)))


@pytest.mark.parametrize("seed", range(12))
def test_an_unrecorded_step_keeps_its_place_behind_results_that_are_not_durable_yet(seed: int) -> None:
    check_everywhere(unrecorded_behind_ahead, seed, settled=True)


@perdure.workflow
async def forgets_an_unrecorded_step() -> str:
    task = asyncio.ensure_future(peek(1))
    other = asyncio.ensure_future(peek(2))
    await other
    task.cancel()
    return "done"


@perdure.workflow
async def drops_unrecorded_steps() -> str:
    tasks = [asyncio.ensure_future(peek(n)) for n in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await add(1, 1)
    return "done"


@pytest.mark.parametrize("workflow", [forgets_an_unrecorded_step, drops_unrecorded_steps])
def test_an_unrecorded_step_that_was_given_up_holds_nothing(workflow: perdure.Workflow[..., Any]) -> None:
    for seed in range(6):
        original = check_everywhere(workflow, seed, settled=True)
        assert result(original.log[-1]) == ("completed", "done")
        assert not [event for event in original.log if event.type == EventType.STEP_CANCELLED]


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_around_an_aborted_group_ends_in_a_timeout(seed: int) -> None:
    """asyncio before 3.13 leaves the group's own cancel behind, and takes it for one that came from outside."""
    original = check_everywhere(limits_around_aborted_groups, seed, settled=True)
    status, seen = result(original.log[-1])
    assert status == "completed"
    assert (
        seen
        == [
            ["aborted by 1", "went on 2", "aborted by 1", "went on 2", 0],
            ["aborted by 1", "timeout", "aborted by 1", "wait_for", 0],
        ]
        * 3
    )
