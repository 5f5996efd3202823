"""Flows whose steps are executed by other workers than theirs."""

from __future__ import annotations

import asyncio

import perdure
from tests.cases.ledger import flag, note

ROUTES = {"media.*": "slow"}


@perdure.step(name="media.encode")
async def encode(film: int) -> int:
    note(value=film)
    await asyncio.sleep(0.02)
    note(phase="end", value=film)
    return film * 2


@perdure.step(name="media.cut")
def cut(film: int) -> int:
    note(value=film)
    return film + 1


@perdure.step(name="media.held")
async def held(name: str) -> str:
    note()
    while not flag(name).exists():
        await asyncio.sleep(0.01)
    return name


@perdure.step(name="media.once", mode="at_most_once")
async def once(name: str) -> str:
    note()
    return name


@perdure.step
async def file_away(film: int) -> int:
    note(value=film)
    return film


@perdure.workflow
async def produce(film: int) -> list[int]:
    """Do some steps elsewhere one after the other, some at once, and one here."""
    first = await encode(film)
    pair = await asyncio.gather(encode(first), cut.aio(first))
    return [first, *pair, await file_away(film)]


@perdure.workflow
async def hold(name: str) -> str:
    return await held(name)


@perdure.workflow
async def race(name: str) -> str:
    try:
        async with asyncio.timeout(0.2):
            return await held(name)
    except TimeoutError:
        return f"{name} is late: {await file_away(1)}"


@perdure.workflow
async def risk(name: str) -> str:
    return await once(name)
