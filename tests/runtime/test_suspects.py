"""A run that its last workers died of is executed alone, and belongs to nobody until that is possible."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from perdure import Engine, Status, step, workflow
from perdure.model.claim import Claimant, ClaimRequest, decide
from perdure.model.run import WorkerRow
from perdure.store.base import StoreOptions, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.store.base import Store

LEASE_US = 1_000
gate = asyncio.Event()


@step(name="hold")
async def hold() -> str:
    await gate.wait()
    return "held"


@workflow(name="holding")
async def holding() -> str:
    return await hold()


@step(name="quick")
async def quick() -> str:
    return "quick"


@workflow(name="suspect")
async def suspect() -> str:
    return await quick()


def die_of_it(url: str, times: int) -> None:
    """Let workers claim what is due and die, one after another."""
    store = open_store(url, StoreOptions())
    store.open()
    try:
        for n in range(times):
            die_once(store, f"dead-{n}", n)
    finally:
        store.close()


def die_once(store: Store, name: str, commit_id: int) -> None:
    now = store.now()
    store.register(WorkerRow(name, name, "h", 1, "live", now, now, now + LEASE_US, "[]", "[]"))
    who = Claimant(name, "3.11", 3)
    request = ClaimRequest(name, ("default",), ("0 suspect",), 5)
    claims = store.claim(request, lambda row, recent, at: decide(row, recent, who, at, commit_id))
    assert claims is not None
    assert [claimed.row.id for claimed in claims.taken] == ["s"]
    deadline = time.monotonic() + 5
    while name not in store.sweep():
        assert time.monotonic() < deadline


async def test_a_suspect_waits_unowned_while_other_runs_are_here(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    gate.clear()
    async with Engine(url, [holding, suspect], worker=False) as client:
        await client.start(suspect, id="s")
        die_of_it(url, 2)
        await client.start(holding, id="h")  # claimed together with the suspect, which else might be through before it
    async with Engine(url, [holding, suspect], poll="50ms", hint="10ms") as engine:
        other, run = engine.get("h"), engine.get("s")

        async def types() -> list[str]:
            return [event.type for event in await run.history()]

        async with asyncio.timeout(40):
            while (await types())[-1] != "run_released":
                await asyncio.sleep(0.01)
        info = await run.info()
        assert (info.status, info.owner) == (Status.PENDING, None)
        assert "alone" in msgspec.json.encode((await run.history())[-1].detail).decode()
        gate.set()
        assert await other.result(timeout=30) == "held"
        assert await run.result(timeout=30) == "quick"
