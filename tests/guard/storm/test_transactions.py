"""Transactional steps under kill -9, most of them between the application's commit and the engine's record."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import perdure
from tests.guard.conftest import NewPlace
from tests.guard.storm.shop import TABLES, Shop
from tests.guard.storm.test_storm import DIALECTS
from tests.guard.storm.worker import fulfil
from tests.process import Child, Spawner

PROGRAM = Path(__file__).with_name("worker.py")


async def storm(
    spawn: Spawner, url: str, place: dict[str, Any], runs: int, dies: float
) -> tuple[int, dict[int, list[int]]]:
    """Have the runs executed by workers that die. Give how often one did, and what the runs returned."""
    random, kills = Random(1), 0

    def start() -> Child:
        return spawn(sys.executable, PROGRAM, url, json.dumps(place), str(dies))

    async with perdure.Engine(url, [fulfil], worker=False) as engine:
        waiting = {order: asyncio.create_task(engine.run(fulfil, order, id=f"order-{order}")) for order in range(runs)}
        workers = [start(), start()]
        while not all(task.done() for task in waiting.values()):
            await asyncio.sleep(0.05)
            if random.random() < 0.02:
                random.choice(workers).send(signal.SIGKILL)
            for number, worker in enumerate(workers):
                if worker.process.poll() is not None:
                    assert worker.process.returncode == -signal.SIGKILL, worker.err
                    kills += 1
                    workers[number] = start()
        return kills, {order: task.result() for order, task in waiting.items()}


async def check(spawn: Spawner, url: str, place: dict[str, Any], runs: int, dies: float) -> int:
    shop = Shop(place)
    for text in TABLES:
        shop.execute(text)
    shop.raw.commit()
    kills, results = await storm(spawn, url, place, runs, dies)
    print(f"{place['dialect']}: {3 * runs} transactional steps, {kills} kills")
    sold = shop.execute("select order_id, step, units from taken")
    expected = {
        (order, f"part-{part}", number) for order, numbers in results.items() for part, number in enumerate(numbers)
    }
    assert set(sold) == expected
    assert len(sold) == 3 * runs
    assert sorted(number for _, _, number in sold) == list(range(1, 3 * runs + 1))
    assert shop.execute("select units from stock") == [(1_000_000 - 3 * runs,)]
    shop.raw.close()
    return kills


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_was_sold_is_what_is_recorded(
    spawn: Spawner, new_place: NewPlace, tmp_db: str, dialect: str
) -> None:
    assert await check(spawn, tmp_db, new_place(dialect)._asdict(), runs=10, dies=0.1) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_was_sold_is_what_is_recorded_after_many_kills(
    spawn: Spawner, new_place: NewPlace, tmp_db: str, dialect: str
) -> None:
    assert await check(spawn, tmp_db, new_place(dialect)._asdict(), runs=400, dies=0.05) >= 50
