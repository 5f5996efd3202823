"""Small programs that use every kind of operation, and the ledger of what they did outside."""

from __future__ import annotations

import asyncio
from collections import Counter

import perdure

EFFECTS: Counter[str] = Counter()
"""What was done outside, by the step's key: how often."""
USUAL = {"unsteady": 2}
"""Attempts of a step that has more than one without any fault."""
QUICK = perdure.Retry(attempts=50, initial=0.001, factor=1.0, maximum=0.001, jitter=False)


def _effect(name: str) -> None:
    EFFECTS[f"{perdure.step_info().key}|{name}"] += 1


@perdure.step
async def add(n: int) -> int:
    _effect("add")
    return n + 1


@perdure.step(retry=QUICK)
async def unsteady(n: int) -> int:
    _effect("unsteady")
    if perdure.step_info().attempt == 1:
        raise ConnectionError(n)
    return n * 2


@perdure.step(mode="at_most_once")
async def once(n: int) -> str:
    _effect("once")
    return "sent"


@perdure.step(durability="ahead")
async def ahead(n: int) -> int:
    return n * n


@perdure.step(durability="none")
async def unrecorded(n: int) -> int:
    return -n


@perdure.step
def sync_add(n: int) -> int:
    _effect("sync_add")
    return n + 1


@perdure.step(mode="at_most_once")
def sync_once(n: int) -> str:
    _effect("sync_once")
    return "sent"


async def _sent(n: int) -> str:
    try:
        return await once(n)
    except perdure.StepInterrupted:
        return "sent"  # or not: nobody knows, and the body must live with it


@perdure.workflow
async def plain(n: int) -> list[object]:
    first = await add(n)
    left, right = await asyncio.gather(add(first), unsteady(first))
    await asyncio.sleep(0.001)
    sent = await _sent(left)
    await perdure.checkpoint("half", right)
    squares = [await ahead(k) for k in range(3)]
    await perdure.publish("progress", 0.5)
    return [left, right, sent, squares, await unrecorded(n), await sync_add.aio(right), str(perdure.uuid4())]


@perdure.workflow
def straight(n: int) -> list[object]:
    first = sync_add(n)
    perdure.blocking.sleep(0.001)
    second = add.blocking(first)
    perdure.blocking.checkpoint("half", second)
    try:
        sent = sync_once(second)
    except perdure.StepInterrupted:
        sent = "sent"
    return [first, second, sent, unsteady.blocking(second)]


@perdure.workflow
async def cancelled(n: int) -> None:
    await add(n)
    try:
        await asyncio.sleep(3600)
    finally:
        await add(n + 10)


WORKFLOWS = (plain, straight, cancelled)
AT_MOST_ONCE = frozenset({"once", "sync_once"})
