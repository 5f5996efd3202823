"""A request to cancel arrives once, at the body's next await, and its clean-up is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.model.event import Event
from perdure.model.status import EventType
from tests.kernel.outside import Outside, note
from tests.kernel.replay import check_crash, check_whole_replay
from tests.kernel.steps import add, once
from tests.kernel.world import World, result


def cancelled_at(
    workflow: perdure.Workflow[..., Any], *seconds: float, seed: int = 0, log: tuple[Event, ...] = ()
) -> World:
    def during(world: World) -> None:
        for second in seconds:
            world.host.loop.call_later(second, world.cancel)

    world = World(workflow, outside=Outside(seed))
    world.execute(log, during=during)
    return world


def check(world: World, *, settled: bool = True) -> None:
    """Replay it whole, and from every crash point after the requests were recorded."""
    check_whole_replay(world)
    last = max(event.seq for event in world.log if event.type == EventType.CANCEL_REQUESTED)
    for cut in range(last, len(world.log)):
        check_crash(world, cut, seed=cut, settled=settled)


@perdure.workflow
async def tidies() -> str:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        note("cancelled")
        await add(1, 1)
        note("tidied")
        raise
    return "slept"


@pytest.mark.parametrize("seed", range(4))
def test_clean_up_steps_run_and_the_run_ends_cancelled(seed: int) -> None:
    world = cancelled_at(tidies, 5, seed=seed)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert world.outside.trace == [("cancelled",), ("tidied",)]
    check(world)


@perdure.workflow
async def swallows() -> str:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        note("swallowed")
    await asyncio.sleep(10)
    return f"went on {await add(1, 1)}"


@pytest.mark.parametrize("seed", range(4))
def test_a_swallowed_cancel_does_not_come_back(seed: int) -> None:
    world = cancelled_at(swallows, 5, seed=seed)
    assert result(world.log[-1]) == ("completed", "went on 2")
    assert world.outside.trace == [("swallowed",)]
    check(world)


def test_each_request_arrives_once() -> None:
    world = cancelled_at(swallows, 5, 6)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    check(world)


@perdure.workflow
async def tidies_twice() -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        try:
            await asyncio.sleep(500)
        finally:
            note("second", await once(1))


def test_a_second_request_during_clean_up_arrives_there() -> None:
    world = cancelled_at(tidies_twice, 5, 50)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert world.outside.trace == [("second", 3)]
    assert len([event for event in world.log if event.type == EventType.CANCEL_REQUESTED]) == 2
    check(world, settled=False)


@perdure.workflow
async def awaits_nothing_at_first() -> str:
    note("begun")
    return str(await add(1, 1))


def test_a_cancel_before_the_first_await_arrives_there_and_no_step_begins() -> None:
    world = World(awaits_nothing_at_first)
    world.inbox_before = 1
    world.execute()
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert world.outside.trace == [("begun",)]
    assert not world.outside.calls
    check(world)


@perdure.workflow
async def shields() -> str:
    inner = asyncio.ensure_future(add(2, 2))
    try:
        await asyncio.shield(inner)
    except asyncio.CancelledError:
        return f"shielded {await inner}"
    return "in time"


@perdure.workflow
async def groups() -> None:
    async def branch(n: int) -> None:
        try:
            await asyncio.sleep(100 + n)
        finally:
            note("branch", await add(n, n))

    async with asyncio.timeout(500), asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(branch(n))


SHAPES: dict[str, tuple[perdure.Workflow[..., Any], float, Callable[[World], bool]]] = {
    "shield": (shields, 0.02, lambda world: result(world.log[-1]) == ("completed", "shielded 4")),
    "group": (groups, 5, lambda world: sorted(world.outside.trace) == [("branch", 0), ("branch", 2), ("branch", 4)]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cancel_goes_through_what_asyncio_builds(shape: str) -> None:
    workflow, second, holds = SHAPES[shape]
    world = cancelled_at(workflow, second)
    assert holds(world)
    check(world)


@perdure.workflow
async def limits_its_clean_up() -> list[str]:
    """Go on after a cancel, and meet limits: asyncio before 3.11.3 took the old cancel for one that had just come."""
    seen = []
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        seen.append("cancelled")
    try:
        async with asyncio.timeout(1):
            await asyncio.sleep(10)
    except TimeoutError:
        seen.append("timeout")
    try:
        await asyncio.wait_for(asyncio.sleep(10), 1)
    except TimeoutError:
        seen.append("wait_for")
    return seen


def test_a_limit_after_a_swallowed_cancel_ends_in_a_timeout() -> None:
    world = cancelled_at(limits_its_clean_up, 5)
    assert result(world.log[-1]) == ("completed", ["cancelled", "timeout", "wait_for"])
    check(world)


@perdure.workflow
async def cancelled_within_a_limit() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(1000)
    async with asyncio.timeout(100):
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(200)


def test_a_cancel_within_a_limit_is_never_taken_for_the_limit() -> None:
    world = cancelled_at(cancelled_within_a_limit, 5, 10)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    check(world)
