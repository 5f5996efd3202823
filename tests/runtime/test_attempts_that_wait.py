"""An attempt that is due and cannot begin yet is something to do: its run is neither parked nor put out of memory."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import perdure
from perdure import StoreUnavailable
from perdure.runtime.lease import boot_time

LET_GO = threading.Event()


@perdure.step(timeout="50ms", retry=perdure.Retry(attempts=2, initial="1ms"))
def stuck_once() -> int:
    attempt = perdure.step_info().attempt
    if attempt == 1:
        LET_GO.wait(10)
    return attempt


@perdure.workflow
async def retried() -> int:
    return await stuck_once.aio()


@perdure.step
async def one() -> int:
    return 1


@perdure.workflow
async def plain() -> int:
    return await one()


async def test_a_retry_waits_for_the_thread_of_the_attempt_before(tmp_db: str) -> None:
    LET_GO.clear()
    async with perdure.Engine(tmp_db, [retried], evict_after="10ms") as engine:
        run = await engine.start(retried)
        async with asyncio.timeout(40):
            while not [event for event in await run.history() if event.type == "step_attempt_failed"]:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert await run.status() == "running"
        LET_GO.set()
        assert await run.result(timeout=30) == 2


async def test_a_run_whose_lease_is_in_doubt_waits_for_a_heartbeat(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [plain], lease="30s", evict_after="10ms") as engine:
        worker: Any = engine._worker
        store: Any = engine._store
        beat, failing = store.heartbeat, threading.Event()

        def heartbeat(worker_id: str, lease_us: int) -> Any:
            if failing.is_set():
                raise StoreUnavailable("no heartbeat for now")
            return beat(worker_id, lease_us)

        store.heartbeat = heartbeat
        run = await engine.start(plain, delay="100ms")
        async with asyncio.timeout(40):
            while run.id not in worker.host.runs:
                failing.set()
                await asyncio.sleep(0)
        worker.lease.granted(-1e9)
        await asyncio.sleep(0.3)
        failing.clear()
        worker.lease.granted(boot_time())
        worker.host.lease_extended()
        assert await run.result(timeout=30) == 1
