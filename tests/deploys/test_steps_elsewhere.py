"""A step that is routed to another queue is executed on the version that its run began with, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import Engine, Run, Status
from perdure.verify.database import verify
from tests.deploys.place import Place, end, until_recorded
from tests.process import Spawner

ROUTE = "route=media.*:slow"


def shop(label: str) -> dict[str, str]:
    """Return a shop whose second step is for another queue and stands in a module of its own."""
    media = f"""
import perdure

@perdure.step(name="media.encode")
async def encode(film: str) -> str:
    return film + " encoded by {label}"
"""
    flow = f"""
import media, perdure

@perdure.step
async def say() -> str:
    return "{label}"

@perdure.workflow(version="{label}")
async def fulfil() -> list[str]:
    first = await say()
    encoded = await media.encode("Metropolis")
    return [first, encoded, await say()]
"""
    return {"shop.py": flow, "media.py": media}


async def test_a_step_elsewhere_is_executed_on_the_version_of_its_run(
    tmp_path: Path, tmp_db: str, spawn: Spawner
) -> None:
    place = Place(tmp_path, tmp_db, spawn)
    async with Engine(tmp_db, worker=False) as engine:
        old = await asyncio.to_thread(place.worker, "old", shop("1.0.0"), ROUTE)
        run: Run[object] = await engine.start("fulfil", id="r")
        await until_recorded(run, "step_sent")
        await asyncio.to_thread(end, old)
        place.forget("old")
        caller = await asyncio.to_thread(place.worker, "new", shop("2.0.0"), ROUTE)
        elsewhere = await asyncio.to_thread(place.worker, "slow", shop("2.0.0"), "queues=slow", ROUTE)
        async with asyncio.timeout(60):
            assert await run.result() == ["1.0.0", "Metropolis encoded by 1.0.0", "1.0.0"]
        async with asyncio.timeout(30):
            assert await (await engine.start("fulfil", id="s")).result() == [
                "2.0.0", "Metropolis encoded by 2.0.0", "2.0.0",
            ]  # fmt: skip
        for run_id, label in (("r:1", "1.0.0"), ("s:1", "2.0.0")):
            info = await engine.get(run_id).info()
            assert (info.queue, info.version, info.status) == ("slow", label, Status.COMPLETED)
        await asyncio.to_thread(end, caller)
        await asyncio.to_thread(end, elsewhere)
    assert verify(tmp_db).sound
