"""More old versions due at once than a worker may have hosts: all go on, none waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from perdure import Engine, EventType
from tests.deploys.place import Place, end
from tests.process import Spawner
from tests.upgrade.deployment import publish

MANY = 20
MOST_HOSTS = 2

SHOP = """
import asyncio, os
import perdure

@perdure.step
async def say() -> list[str]:
    return [{label!r}, str(os.getpid())]

@perdure.workflow(name="order", version={label!r})
async def order() -> list[list[str]]:
    said = []
    for _ in range(3):
        said.append(await say())
        await asyncio.sleep(1)
    return said
"""


@pytest.mark.timeout(240)
async def test_twenty_versions_are_due_at_once_and_all_advance_with_two_hosts(
    tmp_path: Path, tmp_db: str, spawn: Spawner
) -> None:
    place = Place(tmp_path, tmp_db, spawn)
    labels = [f"1.{number}.0" for number in range(MANY)]
    async with Engine(tmp_db, worker=False) as engine:
        for label in labels:
            folder = tmp_path / label / "shop"
            folder.mkdir(parents=True)
            (folder / "__init__.py").touch()
            (folder / "flow.py").write_text(SHOP.format(label=label), "utf-8")
            await asyncio.to_thread(publish, tmp_db, folder.parent, label)
        runs = [await engine.start("order", id=label, version=label) for label in labels]
        options = (f"max_hosts={MOST_HOSTS}", "host_idle=0.2", "foreign_delay=100ms")
        worker = await asyncio.to_thread(place.worker, "new", SHOP.format(label="2.0.0"), *options)
        waiting = asyncio.gather(*(run.result(timeout="200s") for run in runs))
        most = 0
        while not waiting.done():
            most = max(most, len(await engine.hosts.list()))
            await asyncio.sleep(0.05)
        results = await waiting
        assert [{name for name, _ in said} for said in results] == [{label} for label in labels]
        assert str(worker.pid) not in {pid for said in results for _, pid in said}
        # A host that leaves has left before its place is given away; the row of it may stand for a moment more.
        assert most <= MOST_HOSTS + 1
        claims = [
            (event.at, label)
            for label, run in zip(labels, runs, strict=True)
            for event in await run.history()
            if event.type == EventType.RUN_CLAIMED
        ]
        turns = Counter[str]()
        for _, label in sorted(claims):  # who has waited longest is next, so nobody is two rounds ahead of another
            turns[label] += 1
            assert turns[label] - min(turns[each] for each in labels) <= 2, claims
        await asyncio.to_thread(end, worker)
