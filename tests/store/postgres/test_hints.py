"""Hints are a help and no need: everything happens without them; and they cost next to nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Queue, RunCancelled, Start
from perdure.store.postgres.dialect import PostgresDialect
from tests.servers.fixtures import Database

TURNS = 7


@perdure.step
async def piece(number: int) -> int:
    return number


@perdure.workflow
async def five() -> int:
    return sum([await piece(number) for number in range(5)])


@perdure.workflow
async def asleep() -> None:
    await perdure.sleep(3600)


def silence(patch: pytest.MonkeyPatch) -> None:
    """Keep stores that are opened from then on from hearing and sending hints."""
    patch.setattr(PostgresDialect, "listen", lambda *_: False)


async def test_without_hints_everything_happens_all_the_same(
    new_store: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, ends, cancels and changes of queues reach other engines by their own looks."""
    url = new_store("postgres").url
    silence(monkeypatch)
    shared: dict[str, Any] = {"queues": ["default", Queue("q", concurrency=2)], "lease": "2s", "poll": "0.2s"}
    async with (
        perdure.Engine(url, [five, asleep], evict_after="50ms", **shared) as worker,
        perdure.Engine(url, worker=False) as client,
    ):
        assert worker._store.inner._hints is None  # type: ignore[attr-defined]
        runs = await client.start_many([Start(five, queue=queue) for queue in ("default", "q") for _ in range(5)])
        assert [await run.result(timeout=30) for run in runs] == [10] * 10
        waiting = await client.start(asleep)
        await waiting.cancel()
        with pytest.raises(RunCancelled):
            await waiting.result(timeout=30)
        await client.queue("q").pause()
        held = await client.start(five, queue="q")
        await client.queue("q").resume()
        assert await held.result(timeout=30) == 10


@pytest.mark.nightly
async def test_hints_cost_at_most_a_tenth_of_the_steps(
    new_store: Callable[[str], Database], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another engine listens to all of it, and each is measured in turn."""
    url = new_store("postgres").url

    async def measured() -> float:
        async with perdure.Engine(url, [five], concurrency=200) as engine, perdure.Engine(url, worker=False):
            began = time.monotonic()
            await asyncio.gather(*(engine.run(five) for _ in range(1_000)))
            return time.monotonic() - began

    spans: dict[str, list[float]] = {"with": [], "without": []}
    await measured()
    for _ in range(TURNS):
        spans["with"].append(await measured())
        with pytest.MonkeyPatch.context() as patch:
            silence(patch)
            spans["without"].append(await measured())
    ratio = sum(spans["without"]) / sum(spans["with"])
    with capsys.disabled():
        print(f"\nwith hints {ratio:.0%} of the steps that are made without")
    assert ratio >= 0.9
