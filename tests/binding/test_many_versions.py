"""Hundreds of versions of one workflow: none blocks the next."""

from __future__ import annotations

import time
from typing import Any

import perdure
from perdure import Engine

MANY = 300


@perdure.step
async def look(n: int) -> int:
    return n


async def body(n: int) -> tuple[int, Any]:
    return await look(n), perdure.info().config


def version(n: int) -> perdure.Workflow[[int], Any]:
    """Return a version of the workflow: its configuration is its own."""
    return perdure.workflow(name="order", version=f"1.{n}.0", config={"number": n})(body)


async def test_three_hundred_versions_do_not_block_a_new_one(tmp_db: str) -> None:
    for n in range(MANY):
        async with Engine(tmp_db, worker=False) as engine:
            await engine.versions.publish([version(n)])
    began = time.monotonic()
    async with Engine(tmp_db, [version(MANY)]) as engine:
        assert await engine.run("order", 1) == (1, {"number": MANY})
        assert time.monotonic() - began < 5
        found = await engine.versions.list("order")
        assert len(found) == MANY + 1
        assert found[0].label == f"1.{MANY}.0"
        for n in range(MANY):
            await engine.versions.close("order", f"1.{n}.0", reason="never used")
        assert await engine.run("order", 2) == (2, {"number": MANY})
