"""Code that does not fit its log is parked before any effect, and says what was recorded and what was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import perdure
from perdure.model.event import Event
from perdure.model.status import EventType
from tests.kernel.outside import Outside
from tests.kernel.replay import record, whole
from tests.kernel.steps import add, names, once, plus
from tests.kernel.world import World, result


async def recorded() -> Any:
    first = await add(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("half")
    second = await names()
    return [first, second, await once(1)]


async def other_name() -> Any:
    return await plus.aio(1, 1)


async def other_kind() -> Any:
    await asyncio.sleep(5)


async def other_order() -> Any:
    await add(1, 1)
    await perdure.checkpoint("half")
    await asyncio.sleep(5)


async def other_checkpoint() -> Any:
    await add(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("whole")


async def less() -> Any:
    return await add(1, 1)


async def fewer_attempts() -> Any:
    first = await add(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("half")
    return [first, await names()]


async def raises_early() -> Any:
    await add(1, 1)
    raise ValueError("new check")


Body = Callable[[], Any]


def flow(body: Body) -> perdure.Workflow[..., Any]:
    return perdure.workflow(name="flow")(body)


def replay_with(body: Body, log: list[Event], **options: Any) -> World:
    world = World(flow(body), outside=Outside(3), **options)
    world.execute(log)
    return world


@pytest.fixture(scope="module")
def log() -> list[Event]:
    return whole(record(flow(recorded)))


CASES: dict[str, tuple[Body, str, str]] = {
    "name": (other_name, "step 'add' (event 3, step_completed)", "step 'plus'"),
    "kind": (other_kind, "step 'add' (event 3, step_completed)", "timer 'sleep'"),
    "order": (other_order, "timer 'sleep' (event 4, timer_fired)", "checkpoint 'half'"),
    "checkpoint": (other_checkpoint, "checkpoint 'half' (event 5, checkpoint_reached)", "checkpoint 'whole'"),
    "removed": (less, "timer 'sleep' (event 4, timer_fired)", "nothing"),
    "raises": (raises_early, "timer 'sleep' (event 4, timer_fired)", "nothing"),
}


@pytest.mark.parametrize("case", CASES)
def test_other_code_is_parked_with_recorded_and_requested_side_by_side(log: list[Event], case: str) -> None:
    body, was, asks = CASES[case]
    world = replay_with(body, log)
    last = world.log[-1]
    assert last.type == EventType.RUN_PARKED
    detail = msgspec.json.decode(last.detail or b"{}")
    assert (detail["recorded"], detail["requested"]) == (was, asks)
    plain = was.partition(" (")[0].replace("'", ""), asks.replace("'", "")
    assert detail["reason"].startswith("diverged: run run on flow@0.0.0: operation ")
    assert detail["reason"].endswith(f" recorded {plain[0]}, the code asked for {plain[1]}")
    assert not world.outside.calls
    assert len(world.log) == len(log) + 2


def test_an_attempt_nobody_asks_for_is_a_divergence(log: list[Event]) -> None:
    intent = next(event.seq for event in log if event.type == EventType.STEP_INTENT)
    world = replay_with(fewer_attempts, log[:intent])
    detail = msgspec.json.decode(world.log[-1].detail or b"{}")
    assert detail["recorded"] == "step 'once' (event 7, step_intent)"
    assert detail["requested"] == "nothing"
    assert not world.outside.calls


def test_the_right_code_goes_on_after_the_wrong_one_was_parked(log: list[Event]) -> None:
    parked = replay_with(less, log[:-2])
    again = World(flow(recorded), outside=Outside(4))
    again.execute(parked.log)
    assert result(again.log[-1]) == ("completed", [2, ["a", "b"], 3]) or "Interrupted" in str(result(again.log[-1]))


def test_other_arguments_are_a_warning_and_the_recorded_result_is_used(
    log: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    async def other_arguments() -> Any:
        first = await add(1, 2)
        await asyncio.sleep(50)
        await perdure.checkpoint("half", "more")
        return [first, await names(), await once(2)]

    with caplog.at_level(logging.WARNING, "perdure.run"):
        world = replay_with(other_arguments, log)
    assert result(world.log[-1]) == ("completed", [2, ["a", "b"], 3])
    warned = [entry.getMessage() for entry in caplog.records]
    assert len([text for text in warned if "recorded with other arguments" in text]) == 2
    assert not world.outside.calls


def test_on_another_python_it_is_parked_as_incompatible_before_any_effect(log: list[Event]) -> None:
    world = replay_with(other_name, log, python="3.99")
    last = world.log[-1]
    here = f"{log[1].detail!r}".partition('python":"')[2].partition('"')[0]
    reason = result(last)[1].partition('"reason":"')[2]
    assert reason.startswith(f"incompatible: recorded on Python {here}, diverges on 3.99")
    assert not world.outside.calls
    assert result(replay_with(recorded, log, python="3.99").log[-1])[0] == "completed"


def test_a_recorded_value_that_cannot_be_read_parks_the_run(log: list[Event]) -> None:
    broken = [event._replace(payload=b"[1") if event.op == "3" else event for event in log]
    world = replay_with(recorded, broken)
    assert world.log[-1].type == EventType.RUN_PARKED
    assert "cannot be read" in result(world.log[-1])[1]
    assert not world.outside.calls


def test_an_input_that_cannot_be_read_parks_the_run_before_its_body_begins(log: list[Event]) -> None:
    world = replay_with(recorded, [log[0]._replace(input=b"[")])
    assert world.log[-1].type == EventType.RUN_PARKED
    assert not world.outside.calls
