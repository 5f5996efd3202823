"""Sync workflows, and the async twins that must leave the same log."""

from __future__ import annotations

from typing import Any

import perdure
from tests.kernel.outside import note
from tests.kernel.steps import Declined, add, ahead, fail, flaky, once, peek, plus

EVERY: dict[str, perdure.Workflow[..., Any]] = {}
TWINS: dict[str, perdure.Workflow[..., Any]] = {}


def sync(function: Any) -> perdure.Workflow[..., Any]:
    return EVERY.setdefault(function.__name__, perdure.workflow(function))


def twin(function: Any) -> perdure.Workflow[..., Any]:
    return TWINS.setdefault(function.__name__.removesuffix("_twin"), perdure.workflow(function))


@sync
def sync_steps() -> list[Any]:
    seen: list[Any] = [plus(1, 2), add.blocking(3, 4)]
    note(*seen)
    try:
        fail.blocking("gone")
    except Declined as error:
        seen.append(str(error))
    perdure.blocking.sleep("1h")
    perdure.blocking.checkpoint("half", seen)
    perdure.blocking.publish("seen", len(seen))
    seen += [ahead.blocking(5), peek.blocking(6), flaky.blocking(7), once.blocking(8)]
    note(*seen, str(perdure.blocking.now()), perdure.blocking.random(), str(perdure.blocking.uuid4()))
    return seen


@twin
async def sync_steps_twin() -> list[Any]:
    seen: list[Any] = [await plus.aio(1, 2), await add(3, 4)]
    note(*seen)
    try:
        await fail("gone")
    except Declined as error:
        seen.append(str(error))
    await perdure.sleep("1h")
    await perdure.checkpoint("half", seen)
    await perdure.publish("seen", len(seen))
    seen += [await ahead(5), await peek(6), await flaky(7), await once(8)]
    note(*seen, str(perdure.now()), perdure.random(), str(perdure.uuid4()))
    return seen


@sync
def sync_patched() -> list[Any]:
    seen: list[Any] = [ahead.blocking(1)]
    for n in range(2):
        if perdure.patched("more"):
            seen.append(ahead.blocking(n))
        seen.append(plus(n, 1))
    return seen


@twin
async def sync_patched_twin() -> list[Any]:
    seen: list[Any] = [await ahead(1)]
    for n in range(2):
        if perdure.patched("more"):
            seen.append(await ahead(n))
        seen.append(await plus.aio(n, 1))
    return seen


@sync
def sync_loop() -> int:
    total = 0
    for _ in range(6):
        total = plus(total, 1)
        total = ahead.blocking(total)
    return total


@twin
async def sync_loop_twin() -> int:
    total = 0
    for _ in range(6):
        total = await plus.aio(total, 1)
        total = await ahead(total)
    return total
