"""Real complaints about persistence: what was acknowledged is kept, and what ended stays ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from perdure import Status, StoreUnavailable
from perdure.store.instrumented import Instrumented
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World


async def finish(world: World, run_id: str) -> Any:
    async with world.engine() as engine:
        return await engine.get(run_id).result(timeout=30)


@everywhere
async def test_case_per_02(world: World) -> None:
    """Crash while finishing leaves the run running for ever.

    Killed before and after every write from the end of the last step on (its result, the end of the run); each time one
    more worker ends the run.
    Source: Azure/azure-functions-durable-python#280.
    """
    for write in (1, 2):
        for when in ("before", "after"):
            run_id = f"{when}-{write}"
            child = world.worker(run_id, fault=f"kill {when} write {write} since second")
            async with world.client() as client:
                await client.start(flows.two_steps, id=run_id)
            assert child.finish().code == -9
            assert await finish(world, run_id) == ["one", "two"]
            in_flight = when == "before" and write == 1
            assert world.ledger.count("first", run_id) == 1
            assert world.ledger.count("second", run_id) in ((1, 2) if in_flight else (1,))
            world.ledger.path.rename(world.ledger.path.with_suffix(f".{run_id}"))


class Gate:
    """Holds the writes of one engine back, its heartbeat too, as a stalled connection would."""

    def __init__(self, store: Instrumented) -> None:
        self.open = threading.Event()
        self.open.set()
        self.tried = threading.Event()
        self._commit = store.commit
        self._heartbeat = store.heartbeat
        store.commit = self.commit  # type: ignore[method-assign]
        store.send = lambda _: None  # type: ignore[method-assign, assignment]  # so that every write comes by here
        store.heartbeat = self.heartbeat  # type: ignore[method-assign]

    def commit(self, batch: Sequence[Any], *, block: bool = True) -> Any:
        if not self.open.is_set():
            if not block:
                return None
            self.tried.set()
            self.open.wait(15)
        return self._commit(batch, block=block)

    def heartbeat(self, worker_id: str, lease_us: int) -> Any:
        if not self.open.is_set():
            raise StoreUnavailable("held back")
        return self._heartbeat(worker_id, lease_us)


@everywhere
async def test_case_per_05(world: World) -> None:
    """Two finishers, last write wins: a late status write sets a finished run back to running.

    The write after step 1 is held back until another worker has ended the run, then let through.
    Source: conductor-oss/conductor#323.
    """
    async with world.engine(name="slow") as slow:
        gate = Gate(slow._store)  # type: ignore[arg-type]
        run = await slow.start(flows.two_steps, id="r")
        gate.open.clear()
        await asyncio.to_thread(gate.tried.wait, 10)
        async with world.engine(name="fast") as fast:
            assert await fast.get("r").result(timeout=30) == ["one", "two"]
            log = world.types("r")
            gate.open.set()
            assert await run.status() == Status.COMPLETED
            await fast.start(flows.trivial, id="other")
            assert await slow.get("other").result(timeout=30) == 0
            assert await fast.get("r").status() == Status.COMPLETED
            assert world.types("r") == log
