"""Real complaints about runs that wait for others under limits. What waits here sends its steps to another queue."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import perdure
from perdure import Queue, Start
from perdure.verify.database import verify

ROUTES = {"left.*": "left", "right.*": "right"}
began: list[tuple[str, float]] = []
ended: list[tuple[str, float]] = []


async def at_work(queue: str) -> None:
    began.append((queue, time.monotonic()))
    await asyncio.sleep(0.01)
    ended.append((queue, time.monotonic()))


@perdure.step(name="left.step")
async def left(number: int) -> int:
    await at_work("left")
    return number


@perdure.step(name="right.step")
async def right(number: int) -> int:
    await at_work("right")
    return -number


@perdure.workflow
async def crossing() -> list[int]:
    """Send a step to the other queue, whichever of the two it is on, and execute one here; twice."""
    return [await left(1), await right(2), await left(3), await right(4)]


@perdure.workflow
async def pair() -> list[int]:
    """Wait for two steps at once."""
    return list(await asyncio.gather(right(1), right(2)))


@pytest.fixture(autouse=True)
def fresh() -> None:
    began.clear()
    ended.clear()


def engine(url: str, queues: Sequence[Any], **options: Any) -> perdure.Engine:
    chosen = {"lease": "2s", "poll": "0.2s", "hint": "20ms", "grace": "1s", "evict_after": "50ms", **options}
    return perdure.Engine(url, [crossing, pair], queues=queues, routes=ROUTES, **chosen)


def most_at_once(queue: str) -> int:
    """Return how many steps were at work on a queue at once."""
    begins = [(at, 1) for name, at in began if name == queue]
    ends = [(at, -1) for name, at in ended if name == queue]
    most = here = 0
    for _, change in sorted(begins + ends):
        here += change
        most = max(most, here)
    return most


async def all_end(client: perdure.Engine, runs: Sequence[Any], wanted: list[int], url: str) -> None:
    """Wait for the runs; then no slot is in use, and no limit was exceeded in the log by `perdure verify`."""
    for run in runs:
        assert await run.result(timeout=30) == wanted
    for queue in ("left", "right"):
        assert most_at_once(queue) <= 1
        assert (await client.queue(queue).info()).slots == 0
    assert verify(url).findings == []


async def test_case_que_12(url: str) -> None:
    """Parents hold all slots while they wait for children: classic self-deadlock of recursive work.

    Two queues of limit 1, six runs on each; every run sends steps to the other queue, whose only slot may be that of a
    run which waits for this queue. What waits here is the caller of a step on another queue; a step calls no steps, so
    it is not nested deeper. Source: triggerdotdev/trigger.dev#1715, smithersai/smithers#1602, PrefectHQ/prefect#16027.
    """
    queues = [Queue("left", concurrency=1), Queue("right", concurrency=1)]
    async with engine(url, queues) as one, engine(url, queues):
        runs = await one.start_many(Start(crossing, queue=name) for name in ("left", "right") * 6)
        await all_end(one, runs, [1, -2, 3, -4], url)
        assert Counter(name for name, _ in began) == {"left": 24, "right": 24}


async def test_case_que_12_one_place(url: str) -> None:
    """The same in a worker that has room for one run: what waits takes no room."""
    queues = [Queue("left", concurrency=1), Queue("right", concurrency=1)]
    async with engine(url, queues, concurrency=1) as worker:
        runs = await worker.start_many(Start(crossing, queue=name) for name in ("left", "right") * 2)
        await all_end(worker, runs, [1, -2, 3, -4], url)


async def test_case_que_12_slots_that_are_kept(url: str) -> None:
    """A queue whose runs keep their slots while they wait: one run after the other, and each of them ends."""
    queues = [Queue("left", concurrency=1, hold_while_waiting=True), Queue("right", concurrency=1)]
    async with engine(url, queues) as worker:
        runs = await worker.start_many(Start(crossing, queue="left") for _ in range(4))
        await all_end(worker, runs, [1, -2, 3, -4], url)
        assert [name for name, _ in began] == ["left", "right"] * 8


async def test_case_que_18(url: str) -> None:
    """Two waits release the parent's permit twice: the limit is broken, and the parent may hang.

    Runs on a queue of limit 1 wait for two steps at once, which are executed on another queue of limit 1: they do not
    overlap. What waits here is the caller of steps on another queue. Source: vekexasia/pi-extensible-workflows#264.
    """
    queues = [Queue("left", concurrency=1), Queue("right", concurrency=1)]
    async with engine(url, queues) as one, engine(url, queues):
        runs = await one.start_many(Start(pair, queue="left") for _ in range(5))
        await all_end(one, runs, [-1, -2], url)
        assert len(ended) == 10
        for run in runs:
            kinds = Counter(event.type for event in await run.history())
            assert kinds["step_sent"] == kinds["step_completed"] == 2
            assert kinds["run_claimed"] == kinds["run_waiting"] + 1
