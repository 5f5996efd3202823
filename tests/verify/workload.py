"""A database with one of everything, for tests that look at stored data."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import perdure
from perdure.model.claim import ClaimRequest
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance.filling import change

BROKEN = {"charge": True}
"""What fails until it is mended."""


@perdure.step
async def reserve(sku: str) -> str:
    return f"hold-{sku}"


@perdure.step(retry=perdure.Retry(attempts=5, initial=0.001, maximum=0.001))
async def unsteady(sku: str) -> str:
    if perdure.step_info().attempt < 3:
        raise ConnectionError(sku)
    return f"at last {sku}"


@perdure.step(mode="at_most_once")
def notify(sku: str) -> str:
    return f"told {sku}"


@perdure.step
async def charge(sku: str) -> str:
    if BROKEN["charge"]:
        raise ValueError(sku)
    return f"paid {sku}"


@perdure.workflow
async def order(sku: str) -> list[str]:
    holds = await asyncio.gather(reserve(sku), unsteady(sku))
    await asyncio.sleep(0.01)
    await perdure.checkpoint("held", holds)
    await perdure.publish("progress", 0.5)
    return [*holds, await notify.aio(sku)]


@perdure.workflow
async def payment(sku: str) -> str:
    await reserve(sku)
    return await charge(sku)


@perdure.workflow
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


WORKFLOWS = (order, payment, nap)


async def fill(url: str) -> None:
    """Run one of everything: completed, failed, reopened, cancelled by message, purged, waiting, pending, parked.

    And leave a queue with limits behind, with a run that is owned and one that waits in the line of its key.
    """
    async with perdure.Engine(url, WORKFLOWS, evict_after=0.01, lease="2s", poll=0.05) as engine:
        await engine.run(order, "a", id="done", tags={"tenant": "x"})
        await engine.run(order, "b", id="purged", tags={"tenant": "x"})
        await engine.purge("purged", actor="test", reason="old")
        BROKEN["charge"] = True
        for run_id in ("failed", "reopened"):
            run = await engine.start(payment, run_id, id=run_id)
            with suppress(perdure.RunFailed):
                await run.result()
        BROKEN["charge"] = False
        await engine.retry("reopened", actor="test", reason="mended")
        await engine.get("reopened").result()
        nap_run = await engine.start(nap, 3600.0, id="cancelled")
        await engine.start(nap, 3600.0, id="waiting")
        await engine.start(nap, 0.0, id="pending", delay="1h")
        while await engine.get("waiting").status() != "waiting":
            await asyncio.sleep(0.01)
        await nap_run.cancel(actor="test", reason="enough")
        with suppress(perdure.RunCancelled):
            await nap_run.result()
    stand_in_line(url)


def stand_in_line(url: str) -> None:
    """Leave a queue with limits as a worker leaves it that is killed."""
    store = open_store(url, StoreOptions())
    store.open()
    store.register(worker("killed", store.now()))
    store.commit([change("limited", concurrency=1, concurrency_per_key=1)])
    for run_id in ("owned", "keyed"):
        store.commit([Author(run_id, store.now()).create(queue="limited", partition_key="k")])
    claims = store.claim(ClaimRequest("killed", ("limited",), ("0 order",), 2), claims_for("killed"))
    assert claims is not None
    assert [one.row.id for one in claims.taken] == ["owned"]
    store.close()
