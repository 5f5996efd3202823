"""The steps that the programs here call: one of every kind."""

from __future__ import annotations

import perdure
from tests.kernel.outside import here


class Declined(Exception):
    """What a step may raise; its module is imported, so a body can catch it by class."""


@perdure.step
async def add(left: int, right: int) -> int:
    await here().work()
    return left + right


@perdure.step
def plus(left: int, right: int) -> int:
    here().called()
    return left + right


@perdure.step(durability="ahead")
async def ahead(number: int) -> int:
    await here().work()
    return number * 10


@perdure.step(durability="none")
async def peek(number: int) -> int:
    await here().work()
    return number + 1


@perdure.step(mode="at_most_once")
async def once(number: int) -> int:
    await here().work()
    return number * 3


@perdure.step
async def fail(text: str) -> int:
    await here().work()
    raise Declined(text)


@perdure.step(retry=perdure.Retry(attempts=3, initial="1s", jitter=False))
async def flaky(number: int) -> int:
    if (await here().work()).attempt < 3:
        raise ConnectionError("not now")
    return number


@perdure.step
async def names() -> list[str]:
    await here().work()
    return ["a", "b"]


@perdure.step
async def try_it(label: str) -> str:
    await here().work()
    if label in here().broken:
        raise Declined(label)
    return label


@perdure.step(mode="at_most_once")
async def try_once(label: str) -> str:
    await here().work()
    if label in here().broken:
        raise Declined(label)
    return label
