"""Runs in every state, and a record of every step that was begun, kept outside of all databases.

As a program, ``python -m tests.transfer.flows URL RECORD`` starts them all and says ``ready`` once each is where it is
to be; it is meant to be killed then.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import perdure

LATER_S = 4.0
"""When those that wait go on."""


def note(text: str) -> None:
    """Add a line to the record."""
    with Path(os.environ["RECORD"]).open("ab", buffering=0) as record:
        record.write(text.encode() + b"\n")


def run_id() -> str:
    return perdure.step_info().run_id


@perdure.step
async def work(part: str) -> str:
    note(f"{run_id()} {part}")
    return part * 100


@perdure.step(retry=perdure.Retry(attempts=3, initial=LATER_S, maximum=LATER_S, jitter=False))
async def unsteady() -> str:
    note(f"{run_id()} unsteady {perdure.step_info().attempt}")
    if perdure.step_info().attempt == 1:
        raise ConnectionError
    return "steady"


@perdure.step
async def held() -> str:
    note(f"{run_id()} held")
    if os.environ.get("HOLD"):
        print("holding", flush=True)
        await asyncio.Event().wait()
    return "let go"


@perdure.step
async def broken() -> None:
    raise ValueError("broken")


@perdure.workflow
async def plain() -> str:
    return await work("a") + await work("b")


@perdure.workflow
async def sleeping(seconds: float) -> str:
    first = await work("a")
    await asyncio.sleep(seconds)
    return first + await work("b")


@perdure.workflow
async def retrying() -> str:
    await work("a")
    return await unsteady() + await work("b")


@perdure.workflow
async def holding() -> str:
    await work("a")
    return await held() + await work("b")


@perdure.workflow
async def failing() -> None:
    await work("a")
    await broken()


@perdure.workflow
async def stuck() -> None:
    await work("a")
    await asyncio.Event().wait()


WORKFLOWS = (plain, sleeping, retrying, holding, failing, stuck)


async def reach(engine: perdure.Engine, name: str, status: str) -> None:
    while await engine.get(name).status() != status:
        await asyncio.sleep(0.02)


async def fill(url: str) -> None:
    """Bring one run into every state, and stay."""
    async with perdure.Engine(url, WORKFLOWS, evict_after=0.01, lease=1.0, poll=0.05) as engine:
        await engine.run(plain, id="done", tags={"tenant": "x", "odd \u00e4\u4e2d": "\U0001f600"})
        await engine.run(plain, id="purged")
        await engine.purge("purged", actor="ada", reason="too old")
        with suppress(perdure.RunFailed):
            await engine.run(failing, id="failed")
        await engine.start(stuck, id="parked")
        await engine.start(sleeping, LATER_S, id="asleep", tags={"tenant": "x"})
        await engine.start(sleeping, 3600.0, id="told")
        await engine.start(retrying, id="retrying")
        await engine.start(plain, id="delayed", delay=LATER_S, priority=7)
        await engine.start(plain, id="elsewhere", queue="nobody")
        await engine.queue("narrow").set(
            concurrency=1, fair=True, rate=perdure.Rate(limit=1000, per="1s"), reason="few at once"
        )
        for n in range(4):
            name = f"narrow-{n}"
            await engine.start(
                plain, queue="narrow", partition_key=f"k{n % 2}", deduplication_key=name, tags={"n": name}
            )
        for name, status in (("parked", "parked"), ("asleep", "waiting"), ("told", "waiting"), ("retrying", "waiting")):
            await reach(engine, name, status)
        await engine.start(holding, id="held")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1]))
