"""Flows whose steps are executed on another queue than their runs', and an engine that serves both queues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from perdure import Engine, Event, Retry, Run, RunNotFound, Status, step, step_info, workflow
from perdure.verify.database import verify

ROUTES = {"media.*": "slow"}
QUEUES = ["default", "slow"]
QUICK: dict[str, Any] = {"poll": "50ms", "hint": "10ms"}
ONCE_MORE = Retry(attempts=3, initial="10ms", factor=1.0, jitter=False)

calls: list[str] = []
keys: list[str] = []
gates: dict[str, asyncio.Event] = {}
broken: set[str] = set()
lifted = threading.Event()


class Torn(Exception):
    """A failure with more to it than a text."""

    def __init__(self, film: str, *, frame: int) -> None:
        super().__init__(f"{film} is torn at {frame}")
        self.film = film
        self.frame = frame


@step(name="media.encode", retry=Retry(attempts=1))
async def encode(film: str) -> str:
    calls.append(film)
    keys.append(step_info().key)
    if film in broken:
        raise Torn(film, frame=7)
    if film in gates:
        await gates[film].wait()
    return f"{film}!"


@step(name="media.cut")
def cut(film: str, at: int = 1) -> tuple[str, int]:
    calls.append(f"cut {film}")
    return film, at


@step(name="media.flaky", retry=ONCE_MORE)
async def flaky(film: str) -> int:
    calls.append(film)
    number = step_info().attempt
    if number < 3:
        raise Torn(film, frame=number)
    return number


@step(name="media.once", mode="at_most_once")
async def once(film: str) -> str:
    calls.append(film)
    return film


@step(name="media.slow", timeout="50ms", retry=Retry(attempts=1))
async def slow(film: str) -> str:
    await asyncio.sleep(30)
    return film


@step(name="media.held")
def held(film: str) -> str:
    calls.append(film)
    assert lifted.wait(20)
    return film


@step(name="media.quick", durability="none")
async def quick(film: str) -> str:
    calls.append(film)
    return film


@step(name="media.early", durability="ahead")
async def early(film: str) -> str:
    calls.append(film)
    return film


@step
async def near(text: str) -> str:
    calls.append(text)
    return text


@workflow
async def one(film: str) -> str:
    return await encode(film)


@workflow
def sync_one(film: str) -> list[Any]:
    return [cut(film, 3), cut(film)]


@workflow
def sync_held(film: str) -> str:
    return held(film) + held(film)


@workflow
async def mixed(film: str) -> list[str]:
    """Do steps that are not recorded, or later, beside others."""
    return [await quick(film), await early(film), await near(film), await encode(film), await early(film)]


@workflow
async def many(films: list[str]) -> list[str]:
    return list(await asyncio.gather(*map(encode, films)))


@workflow
async def grouped(films: list[str]) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(encode.aio(film)) for film in films]
    return [task.result() for task in tasks]


@workflow
async def caught(film: str) -> list[Any]:
    try:
        return [await encode(film)]
    except Torn as error:
        return [type(error).__name__, error.film, error.frame, str(error)]


@workflow
async def with_flaky(film: str) -> int:
    return await flaky(film)


@workflow
async def with_once(film: str) -> str:
    return await once(film)


@workflow
async def with_slow(film: str) -> str:
    return await slow(film)


@workflow
async def told(film: str) -> str:
    """Tell of the end, good or bad, by the same step."""
    try:
        await encode(film)
    except Torn:
        await encode("failure")
        raise
    return await encode("success")


@workflow
async def at_last(film: str) -> str:
    """Race with a timer."""
    try:
        async with asyncio.timeout(0.3):
            return await encode(film)
    except TimeoutError:
        return "late"


FLOWS: list[Any] = [
    one,
    sync_one,
    sync_held,
    mixed,
    many,
    grouped,
    caught,
    with_flaky,
    with_once,
    with_slow,
    told,
    at_last,
]


@asynccontextmanager
async def engine_on(url: str, **options: Any) -> AsyncIterator[Engine]:
    """Give an engine. What it leaves behind is sound, and the code fits what is recorded of every run."""
    async with Engine(url, FLOWS, **{"queues": QUEUES, "routes": ROUTES, **QUICK, **options}) as engine:
        yield engine
        for info in [info async for info in engine.list()]:
            verdict = await engine.check(info.id, processes=0)
            assert verdict.is_safe, str(verdict)
    if ":memory:" not in url:
        assert verify(url).sound, str(verify(url))


async def types(run: Run[Any]) -> list[str]:
    return [event.type for event in await run.history() if not event.type.startswith("run_")]


async def seen(run: Run[Any], kind: str, count: int = 1) -> Event:
    async with asyncio.timeout(20):
        while True:
            found = [event for event in await run.history() if event.type == kind]
            if len(found) >= count:
                return found[-1]
            await asyncio.sleep(0.01)


async def until(run: Run[Any], *wanted: Status) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(RunNotFound):
                if await run.status() in wanted:
                    return
            await asyncio.sleep(0.01)


async def ended(run: Run[Any]) -> Status:
    await until(run, Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TERMINATED)
    return await run.status()
