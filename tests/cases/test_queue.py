"""Real complaints about queues: delays, priorities and settings. Limits have a file of their own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import perdure
from perdure import InvalidValue
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World


@everywhere
async def test_case_que_03(world: World) -> None:
    """Recovered high-priority work sinks behind fresh low-priority work.

    The orphan of a killed worker has priority 10, a hundred fresh runs have none; a worker that executes one at a time
    takes the orphan among the next it takes. Source: janbjorge/pgqueuer#684.
    """
    async with world.client() as client:
        orphan = await client.start(flows.named, id="orphan", priority=10)
        dead = world.worker("W1")
        await world.ledger.until("who")
        dead.destroy()
        for n in range(100):
            await client.start(flows.long_async, 0.05, id=f"fresh{n}")
        async with world.engine(concurrency=1):
            assert await orphan.result(timeout=30) == ["test", "done"]
    gone = world.ledger.entries("who")[-1].at
    between = [entry for entry in world.ledger.entries("wait_async") if entry.at < gone]
    assert len(between) < 60  # what fits into the rest of the lease, one after the other


@everywhere
async def test_case_que_06(world: World) -> None:
    """A per-worker limit acts as a global one.

    Two workers that execute one run at a time: two long runs are in progress at once, on different workers.
    Source: dbos-inc/dbos-transact-py#508.
    """
    async with world.client() as client:
        world.worker("A", concurrency=1)
        world.worker("B", concurrency=1)
        began = time.monotonic()
        runs = [await client.start(flows.long_async, 3.0) for _ in range(2)]
        assert [await run.result(timeout=20) for run in runs] == ["a", "a"]
        assert time.monotonic() - began < 5.9
    assert {entry.worker for entry in world.ledger.entries("wait_async")} == {"A", "B"}


@everywhere
async def test_case_que_14(world: World) -> None:
    """A delay longer than the lease: far-future jobs are handed out once per lease, and run many times when due.

    A delayed run and a sleeping one, due after several leases, four workers of which one is replaced time and again:
    each runs once, on time. Source: celery/celery#2599, celery/kombu#337, iron-io/iron_celery#5.
    """
    engines = [world.engine(name=f"W{n}", evict_after="50ms") for n in range(4)]
    await asyncio.gather(*(engine.open() for engine in engines))
    began = time.monotonic()
    await engines[0].start(flows.trivial, 1, id="delayed", delay=4.0)
    await engines[1].start(flows.plain_sleep, 4.0, id="asleep")
    for n in range(4):
        await asyncio.sleep(0.8)
        await engines[n].close()
        engines[n] = world.engine(name=f"W{n}-new", evict_after="50ms")
        await engines[n].open()
    for name in ("delayed", "asleep"):
        await engines[0].get(name).result(timeout=30)
        assert 3.99 <= world.ledger.entries("last", name)[0].at - began < 12
    await asyncio.gather(*(engine.close() for engine in engines))
    assert world.ledger.counts("last") == {"delayed": 1, "asleep": 1}


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "poll not below lease": ({"lease": "1s", "poll": "1s"}, ("poll", "lease")),
    "no lease": ({"lease": 0}, ("lease",)),
    "negative lease": ({"lease": -1}, ("lease",)),
    "no poll": ({"poll": 0}, ("poll",)),
    "negative grace": ({"grace": "-1s"}, ("grace",)),
    "no concurrency": ({"concurrency": 0}, ("concurrency",)),
    "no threads": ({"threads": 0}, ("threads",)),
    "no deaths": ({"max_deaths": 0}, ("max_deaths",)),
    "no queue": ({"queues": ()}, ("queues",)),
    "a text of queues": ({"queues": "default"}, ("queues",)),
    "not a number": ({"evict_after": float("nan")}, ("evict_after",)),
    "no room": ({"max_bytes": 0}, ("max_bytes",)),
}


@pytest.mark.parametrize("which", WRONG)
def test_case_que_15(world: World, which: str) -> None:
    """Settings that guarantee duplicates are accepted without a word.

    Each setting and pair of settings the wrong way round is refused when the engine is made, with the names of the
    settings, and nothing is left behind. Source: Koed00/django-q#183, Koed00/django-q#614.
    """
    options, named = WRONG[which]
    with pytest.raises(InvalidValue) as caught:
        perdure.Engine(world.url, [flows.trivial], **options)
    for name in named:
        assert name in str(caught.value)
    assert not world.file.exists()


@everywhere
async def test_case_que_15_harmless(world: World) -> None:
    """A step's time limit above the lease is harmless, because the lease is renewed: the step runs once."""
    async with world.engine(lease="500ms", poll="100ms", evict_after="1ms") as engine:
        assert await engine.run(flows.long_async, 2.0) == "a"
    assert world.ledger.count() == 1
