"""A workflow is patched while runs wait: in a database, over two builds of the code."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure import Engine, Status, step
from perdure.verify.database import verify


@step
async def take(item: str) -> str:
    return item


@step
async def look_at(item: str) -> str:
    return f"looked at {item}"


@step
async def send(item: str) -> str:
    return f"sent {item}"


async def first_build(item: str) -> str:
    taken = await take(item)
    await asyncio.sleep(1.5)
    return await send(taken)


async def second_build(item: str) -> str:
    if perdure.patched("look first"):
        item = await look_at(item)
    taken = await take(item)
    await asyncio.sleep(0.01)
    return await send(taken)


def build(body: object) -> perdure.Workflow[[str], str]:
    flow: perdure.Workflow[[str], str] = perdure.workflow(name="order", unversioned=True)(body)  # type: ignore[arg-type]
    return flow


@pytest.mark.parametrize("evict_after", ["10ms", "30s"])
async def test_runs_under_way_keep_their_path_and_new_ones_take_the_patch(tmp_db: str, evict_after: str) -> None:
    async with Engine(tmp_db, [build(first_build)], evict_after=evict_after) as engine:
        old = await engine.start("order", "tea", id="old")
        while not any(event.type == "step_completed" for event in await old.history()):
            await asyncio.sleep(0)
    async with Engine(tmp_db, [build(second_build)], evict_after=evict_after) as engine:
        assert await engine.run("order", "tea", id="new") == "sent looked at tea"
        assert await engine.get("old").result(timeout="10s") == "sent tea"
        assert await engine.get("old").status() is Status.COMPLETED
        taken = {
            run_id: [event.name for event in await engine.get(run_id).history() if event.type == "patch_taken"]
            for run_id in ("old", "new")
        }
        assert taken == {"old": [], "new": ["look first"]}
    assert not verify(tmp_db).findings
