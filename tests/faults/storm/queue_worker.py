"""A worker process of the storm on queues: short runs under limits, some of which sleep."""

from __future__ import annotations

import asyncio
import random
import sys

import perdure
from perdure import Queue, Rate

QUEUES = (
    Queue("tight", concurrency=3, concurrency_per_worker=2, concurrency_per_key=1, fair=True),
    Queue("held", concurrency=3, hold_while_waiting=True, ageing="1s"),
    Queue("slow", rate=Rate(12, per="1s"), concurrency_per_key=2),
)
LEASE = "1s"


@perdure.step
async def work(ms: int) -> int:
    await asyncio.sleep(ms / 1000)
    return ms


@perdure.workflow
async def load(ms: int, naps: bool) -> int:
    await work(ms)
    if naps:
        await asyncio.sleep(random.random() * 0.2)
        await work(ms)
    return ms


def engine(url: str, **options: object) -> perdure.Engine:
    # Many a run is there when one worker after the other is killed: that is not its fault.
    chosen = {"lease": LEASE, "poll": "100ms", "evict_after": "20ms", "max_deaths": 10_000, **options}
    return perdure.Engine(url, [load], queues=QUEUES, **chosen)  # type: ignore[arg-type]


async def serve(url: str) -> None:
    async with engine(url, concurrency=20):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
