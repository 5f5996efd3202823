"""Real complaints about recovery: starved heartbeats, used-up attempts, stuck maintenance, hanging attempts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from perdure import RunFailed, Status
from perdure.model.claim import Claimant, ClaimRequest, decide
from perdure.model.run import WorkerRow
from perdure.runtime.ids import CommitIds, uuid7
from perdure.store.base import Store, StoreOptions, open_store
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import until

LEASE = 1.0


@everywhere
async def test_case_rec_10(world: World) -> None:
    """A step that keeps the interpreter lock starves the heartbeat, is taken for dead and started elsewhere.

    One C-level call holds the lock for six leases; two idle workers. The lease is lost: the second attempt counts,
    the first one's record is refused. Source: Bogdanp/dramatiq#692.
    """
    async with world.client() as client:
        run = await client.start(flows.greedy, 6 * LEASE, id="r")
        child = world.worker("W1", concurrency=1)
        await world.ledger.until("hold_interpreter")
        async with world.engine(name="A"), world.engine(name="B"):
            assert await run.result(timeout=30) == ["test", "two"]
        await until(lambda: "lease lost" in child.err, what="W1 says so")
    assert world.ledger.count("second") == 1
    assert world.types("r").count("step_completed") == 2


def claim_and_die(store: Store, run_workflow: str, ids: CommitIds) -> None:
    """Claim the due run as a worker that is dead at once."""
    now = store.now()
    name = uuid7()
    store.register(WorkerRow(name, name, "host", 1, "live", now, now, now + 50_000, '["default"]', "[]"))
    request = ClaimRequest(name, ("default",), (f"0 {run_workflow}",), 1)
    who = Claimant(name, "3.11", 3)
    claims = store.claim(request, lambda row, recent, at: decide(row, recent, who, at, ids.take()))
    assert claims is not None
    assert claims.taken
    while name not in store.sweep():
        time.sleep(0.01)


@everywhere
async def test_case_rec_15(world: World) -> None:
    """One row over its attempt limit makes every fetch fail, for all other rows too.

    A run stands at its limit of deaths when ten more are enqueued. Source: oban-bg/oban#652.
    """
    async with world.client() as client:
        odd = await client.start(flows.trivial, 99, id="odd", priority=5)
        ids = CommitIds()
        store = open_store(world.url, StoreOptions())
        store.open()
        for _ in range(3):
            claim_and_die(store, "trivial", ids)
        store.close()
        others = [await client.start(flows.trivial, n) for n in range(10)]
        async with world.engine():
            assert [await run.result(timeout=30) for run in others] == list(range(10))
        assert await odd.status() == Status.PARKED
        assert "3 workers died" in ((await odd.info()).detail or "")


KILLED_IN_SWEEP = """
import os, signal
from perdure.store.server import engine as server
from perdure.store.sqlite import engine as sqlite

def deadly(real):
    def sweep(connection, now):
        dead = real(connection, now)
        if dead:
            os.kill(os.getpid(), signal.SIGKILL)
        return dead
    return sweep

for engine in (server, sqlite):
    engine.lease.sweep = deadly(engine.lease.sweep)
from tests.cases.flows import named
"""


@everywhere
async def test_case_rec_17(world: World) -> None:
    """The rescuer itself is stuck: recovery is an ordinary locked job, and when it stalls everything stalls.

    Killed in its maintenance pass (inside its transaction, where it is one); a new worker recovers the orphan.
    Source: procrastinate-org/procrastinate#1408.
    """
    (world.folder / "killed_in_sweep.py").write_text(KILLED_IN_SWEEP)
    async with world.client() as client:
        run = await client.start(flows.named, id="r")
        holder = world.worker("W1")
        await world.ledger.until("who")
        holder.destroy()
        rescuer = world.worker("W2", modules=["killed_in_sweep"])
        assert rescuer.finish().code == -9
        began = time.monotonic()
        world.worker("W3")
        assert await run.result(timeout=30) == ["W3", "done"]
        assert time.monotonic() - began < 12 * LEASE


@everywhere
async def test_case_rec_18(world: World) -> None:
    """A retry attempt hangs, and the run waits for a result that only this attempt can produce.

    Three attempts with a time limit: the first raises, the second hangs for ever, the third returns.
    Source: restatedev/restate#5196.
    """
    async with world.engine(concurrency=1) as engine:
        run = await engine.start(flows.hangs_once, id="r")
        assert await run.result(timeout=30) == 3
        assert await engine.run(flows.trivial, 1) == 1  # the slot is free afterwards
        failed = [event.error for event in await run.history() if event.type == "step_attempt_failed"]
    assert world.ledger.count("hanging") == 3
    assert len(failed) == 2
    assert "ValueError" in str(failed[0])
    assert "timed out" in str(failed[1])


@everywhere
@pytest.mark.parametrize("evict", ["50ms", "30s"])
async def test_case_rec_21(world: World, evict: str) -> None:
    """The first failing step after a wait neither fails the run nor is retried.

    A durable wait (a timer; the run leaves memory meanwhile, or not), then a step that raises: with one attempt the
    run fails, with two the second one counts. Source: inngest/inngest#1290, inngest/inngest PR#1430.
    """
    async with world.engine(evict_after=evict) as engine:
        failing: Any = await engine.start(flows.wait_then_fail)
        trying = await engine.start(flows.wait_then_try_twice)
        began = time.monotonic()
        with pytest.raises(RunFailed, match="after the wait") as caught:
            await failing.result(timeout=30)
        assert isinstance(caught.value.__cause__, ValueError)
        assert await trying.result(timeout=30) == 2
        assert 0.28 < time.monotonic() - began < 10
    assert world.ledger.count("fails") == 1
    assert world.ledger.count("fails_once") == 2
