"""Workers are killed while queues are at their limits: no limit is ever exceeded, and no slot ever leaks.

The limits are checked from the log, by `perdure.verify`, which shares no code with what keeps them: how many runs of a
queue, a key and a worker were owned at once, and how many claims fell into any window.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import perdure
from perdure import Start
from perdure.verify.database import verify
from tests.faults.storm.queue_worker import QUEUES, engine, load
from tests.house.tree import ROOT
from tests.process import Child, Spawner

NAMES = [queue.name for queue in QUEUES]


class Fleet:
    """Three workers, of which one is killed and replaced time and again."""

    def __init__(self, spawn: Spawner, url: str, seed: int) -> None:
        self._spawn = spawn
        self._url = url
        self._random = Random(seed)
        self.kills = 0
        self.workers = [self._worker() for _ in range(3)]
        for worker in self.workers:
            worker.expect("ready", 30)

    def _worker(self) -> Child:
        path = os.pathsep.join((str(ROOT), str(Path(perdure.__file__).parents[1])))
        command = (sys.executable, "-m", "tests.faults.storm.queue_worker", self._url)
        return self._spawn(*command, env={"PYTHONPATH": path})

    def kill(self) -> None:
        place = self._random.randrange(3)
        self.workers[place].destroy()
        self.workers[place] = self._worker()
        self.kills += 1


def starts(count: int, luck: Random) -> list[Start]:
    return [
        Start(
            load, luck.choice([1, 5, 20, 80]), luck.random() < 0.3, queue=luck.choice(NAMES),
            partition_key=luck.choice([None, *"abcdef"]), priority=luck.randrange(3),
        )
        for _ in range(count)
    ]  # fmt: skip


async def storm(url: str, luck: Random, runs: int, seconds: float, fleet: Callable[[], Fleet]) -> int:
    async with engine(url, worker=False) as client:
        handles = list(await client.start_many(starts(runs // 2, luck)))
        workers = await asyncio.to_thread(fleet)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.sleep(luck.uniform(0.1, 0.5))
            workers.kill()
            handles += await client.start_many(starts(runs // 40, luck))
        for handle in handles:
            await handle.result(timeout=150)
        for info in await client.queues():
            assert (info.due, info.later, info.running, info.slots) == (0, 0, 0, 0)
    return workers.kills


@pytest.mark.parametrize(
    "runs,seconds,kills",
    [
        pytest.param(160, 3.0, 5),
        pytest.param(400, 60.0, 60, marks=[pytest.mark.nightly, pytest.mark.timeout(400)]),
    ],
)
@pytest.mark.serial
def test_limits_hold_and_slots_do_not_leak_while_workers_are_killed(
    spawn: Spawner, url: str, runs: int, seconds: float, kills: int
) -> None:
    seed = Random().randrange(2**32)
    killed = asyncio.run(storm(url, Random(seed), runs, seconds, lambda: Fleet(spawn, url, seed)))
    assert killed >= kills, f"seed {seed}"
    report = verify(url, slack_us=0)  # one machine, one clock
    assert report.findings == [], f"seed {seed}"
    assert report.runs >= runs // 2
