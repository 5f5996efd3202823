"""Programs in which task groups abort, and go on under a time limit: replayed from every crash point and elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import perdure
from tests.kernel.steps import Declined, add, fail


async def aborted_at_its_end() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail("while the group waits for its tasks"))


async def aborted_before_its_end() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail("while the group is being filled"))
        await asyncio.sleep(1_000)


async def aborted_twice() -> None:
    async with asyncio.TaskGroup() as outer:
        outer.create_task(aborted_at_its_end())


async def limited(abort: Callable[[], Awaitable[None]], seconds: float) -> list[str]:
    """Go on after an aborted group until a limit around both passes, or does not."""
    seen: list[str] = []

    async def goes_on() -> None:
        try:
            await abort()
        except* Declined as declined:
            seen.append(f"aborted by {len(declined.exceptions)}")
        await asyncio.sleep(seconds)
        seen.append(f"went on {await add(1, 1)}")

    try:
        async with asyncio.timeout(500):
            await goes_on()
    except TimeoutError:
        seen.append("timeout")
    try:
        await asyncio.wait_for(goes_on(), 500)
    except TimeoutError:
        seen.append("wait_for")
    return seen


@perdure.workflow
async def limits_around_aborted_groups() -> list[Any]:
    task = asyncio.current_task()
    assert task is not None
    return [
        [*await limited(abort, seconds), task.cancelling()]
        for abort in (aborted_at_its_end, aborted_before_its_end, aborted_twice)
        for seconds in (10, 1_000)
    ]


EVERY: dict[str, perdure.Workflow[..., Any]] = {limits_around_aborted_groups.name: limits_around_aborted_groups}
