"""Real complaints about deduplication keys, on every backend: one open run for a key, and a key for the next one."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Retry, Run, RunFailed, Status
from perdure.verify.database import verify
from tests.cases.backends import NIGHTLY

EVERYWHERE = pytest.mark.parametrize("kind", ["sqlite", *NIGHTLY])
failing: dict[str, type[Exception]] = {}
"""What the attempt of a name raises."""
spans: list[tuple[float, float]] = []
"""When each attempt began and ended, the one under way at infinity."""
DELAY_S = 3.0


@perdure.step(retry=Retry(attempts=2, initial=DELAY_S, jitter=False, give_up_on=(KeyError,)))
async def attempt(name: str, seconds: float) -> str:
    place, began = len(spans), time.monotonic()
    spans.append((began, math.inf))
    await asyncio.sleep(seconds)
    spans[place] = (began, time.monotonic())
    if name in failing:
        raise failing[name]
    return name


@perdure.workflow
async def job(name: str, seconds: float = 0.0) -> str:
    return await attempt(name, seconds)


@pytest.fixture(autouse=True)
def fresh() -> None:
    failing.clear()
    spans.clear()


def engine(url: str, **options: Any) -> perdure.Engine:
    """Give an engine whose runs leave memory in the delay before a second attempt."""
    chosen = {"queues": ["q"], "lease": "2s", "poll": "0.2s", "hint": "20ms", "grace": "1s", "evict_after": "1ms"}
    return perdure.Engine(url, [job], **{**chosen, **options})


async def keyed(client: perdure.Engine, name: str, **options: Any) -> Run[str]:
    return await client.start(job, name, queue="q", deduplication_key="k", **options)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def in_its_delay(run: Run[Any]) -> None:
    """Wait until a run waits for its second attempt."""
    async with asyncio.timeout(30):
        while await run.status() != Status.WAITING:
            await asyncio.sleep(0.02)


@EVERYWHERE
async def test_case_ide_09(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two runs of one key that wait for a retry wedge what looks for due runs, for all others too.

    The key of a run that has failed is free, so two runs come to have one where the failed one is retried after another
    took its key. Both wait for a second attempt when 50 others fall due with them: all are executed, and the pair too,
    because it is starts that a key keeps apart. Source: oban-bg/oban-py#19, riverqueue/river#619.
    """
    failing["one"] = KeyError
    async with engine(url) as worker:
        first = await keyed(worker, "one")
        with pytest.raises(RunFailed):
            await first.result(timeout=30)
        failing.update({"one": ValueError, "two": ValueError})
        second = await keyed(worker, "two")
        assert second.is_new
        await in_its_delay(second)
        await worker.retry(first.id)
        await in_its_delay(first)
        assert (await keyed(worker, "three")).id == second.id
    failing.clear()
    # Nobody works until the pair is due, and then all are due at once.
    async with engine(url, worker=False) as client:
        assert {await client.get(run.id).status() for run in (first, second)} == {Status.WAITING}
        others = await client.start_many(perdure.Start(job, f"other-{n}", queue="q") for n in range(50))
        await asyncio.sleep(DELAY_S)
    caplog.clear()
    async with engine(url) as worker:
        names = [await worker.get(run.id).result(timeout=30) for run in (*others, first, second)]
        assert names == [*(f"other-{n}" for n in range(50)), "one", "two"]
        assert (await keyed(worker, "three")).is_new
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    assert verify(url).findings == []


@EVERYWHERE
async def test_case_ide_11(url: str) -> None:
    """A key guards only what has not begun, so that two copies run side by side.

    Two workers; more starts of the key while the run is queued, while its first attempt is under way, in the delay
    before the second, and in that: all give the one run there is. After its end there is a new one; and one that failed
    has the key again when it is retried.
    Source: procrastinate-org/procrastinate#1050.
    """
    failing["job"] = ValueError
    async with engine(url, worker=False) as client:
        run = await keyed(client, "job", seconds=0.3)

        async def the_same() -> None:
            again = await asyncio.gather(*(keyed(client, "job", seconds=0.3) for _ in range(4)))
            assert {(one.id, one.is_new) for one in again} == {(run.id, False)}

        await the_same()
        async with engine(url), engine(url):
            await until(lambda: len(spans) == 1)
            await the_same()
            await in_its_delay(run)
            failing.clear()
            await the_same()
            await until(lambda: len(spans) == 2)
            await the_same()
            assert await run.result(timeout=30) == "job"
            following = await keyed(client, "job", seconds=0.3)
            assert following.is_new
            assert await following.result(timeout=30) == "job"
            failing["job"] = KeyError
            failed = await keyed(client, "job")
            with pytest.raises(RunFailed):
                await failed.result(timeout=30)
        await client.retry(failed.id)
        assert (await keyed(client, "job")).id == failed.id
    assert len(spans) == 4
    assert all(end <= began for (_, end), (began, _) in itertools.pairwise(spans))
    assert verify(url).findings == []
