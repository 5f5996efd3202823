"""Workflows that other processes find by their place."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import perdure
from tests.kernel.steps import add, plus

NAMES = {"ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine"}


@perdure.step
async def look_at(name: str) -> int:
    return len(name)


@perdure.workflow
async def counts(length: int) -> int:
    total = 0
    for n in range(length):
        total = await add(total, n)
    return total


@perdure.workflow
def sync_counts(length: int) -> int:
    total = 0
    for n in range(length):
        total = plus(total, n)
    return total


@perdure.workflow
async def by_set() -> int:
    return sum([await look_at(name) for name in NAMES])


@perdure.workflow
async def by_order() -> int:
    return sum([await look_at(name) for name in sorted(NAMES)])


@perdure.workflow
async def by_branch() -> None:
    if next(iter(NAMES)) < "g":
        await add(1, 1)
    await look_at("oak")


@perdure.workflow
async def by_chance() -> None:
    await add(1, 1)
    await look_at(str(random.random()))


@perdure.workflow
async def writes() -> None:
    await add(1, 1)
    Path("perdure-effect").write_text("x")


@perdure.workflow
async def dies() -> None:
    await add(1, 1)
    os._exit(7)


@perdure.workflow
async def spins() -> None:
    await add(1, 1)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass
