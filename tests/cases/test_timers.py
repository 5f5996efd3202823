"""Real complaints about timers: never early, never twice, whatever the wall clock does."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Retry, Status, step, workflow
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import note, until


class Skew:
    """Shifts the wall clock this process sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + self.seconds)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(self.seconds * 1e9))


@pytest.fixture
def skew(monkeypatch: pytest.MonkeyPatch) -> Skew:
    return Skew(monkeypatch)


async def test_case_tim_11(world: World) -> None:
    """The loop sleeps until the old next time and ignores a nearer timer that is added meanwhile.

    Only a timer due in an hour exists when another process adds one due in 1 s and a delayed run due in 1.5 s.
    (Schedules come later.) Source: agronholm/apscheduler#755.
    """
    async with world.engine(evict_after="50ms", poll="0.5s") as engine:
        await engine.start(flows.plain_sleep, 3600.0)
        await until(lambda: world.rows("select count(*) from run where status = 'waiting'") == [(1,)])
        began = time.monotonic()
        near = [["near", "plain_sleep", {"seconds": 1.0}], ["later", "trivial", {"n": 1, "delay": 1.5}]]
        world.worker("adds", client=True, start=near, wait=False).finish()
        added = time.monotonic() - began
        await engine.get("near").result(timeout=30)
        assert 1.0 <= time.monotonic() - began < 1.0 + added + 5
        await engine.get("later").result(timeout=30)
        assert 1.5 <= time.monotonic() - began < 1.5 + added + 5


@pytest.mark.parametrize("shift", [-60.0, 60.0])
async def test_case_tim_12(world: World, skew: Skew, shift: float) -> None:
    """The clock steps back: ticks are lost, leases last too long or expire too soon.

    A durable sleep and a step of several leases are under way when the wall clock is moved by a minute; an engine that
    is opened after the move agrees. Source: agronholm/apscheduler#339.
    """
    async with world.engine(evict_after="50ms") as engine:
        began = time.monotonic()
        sleeper = await engine.start(flows.nap, 2.0)
        stepper = await engine.start(flows.long_async, 2.5)
        await world.ledger.until("wait_async")
        skew.seconds = shift
        async with world.engine(name="late"):
            assert await sleeper.result(timeout=20) == "rested"
            assert 1.99 <= time.monotonic() - began < 20  # far from the minute that the clock jumped
            assert await stepper.result(timeout=20) == "a"
        history = await sleeper.history()
        assert [event.at for event in history] == sorted(event.at for event in history)
    assert world.ledger.count("wait_async") == world.ledger.count("first") == world.ledger.count("last") == 1


YEAR = 365.25 * 86_400


@workflow
async def sleeps(seconds: Any) -> str:
    await perdure.sleep(seconds)
    return "slept"


@workflow
async def sleeps_badly(which: str) -> list[str]:
    refused = []
    for name, seconds in BAD.items():
        try:
            await perdure.sleep(seconds)
        except ValueError:
            refused.append(name)
    for seconds in (math.nan, 1e12):
        try:
            await asyncio.sleep(seconds)
        except ValueError:
            refused.append(f"asyncio {seconds}")
    return refused


BAD: dict[str, Any] = {
    "negative": -1, "nan": math.nan, "infinite": math.inf, "10^12": 10**12, "text": "soon", "negative text": "-1s",
}  # fmt: skip


@pytest.mark.sqlite_only
async def test_case_tim_13(world: World, skew: Skew, monkeypatch: pytest.MonkeyPatch) -> None:
    """A very long sleep overflows, and raises or fires at once.

    30 days, 400 days and 300 years are pending with the exact due time; 0 returns at once; what is negative, not a
    number or too long is a ValueError at the call, also as delay, timeout, wait of a retry and lease. After 30 days
    the first one fires. Source: vercel/workflow PR#824, aws/aws-durable-execution-sdk-js PR#475, nodejs/node#4541.
    """
    spans = {"30d": 30 * 86_400.0, "400d": 400 * 86_400.0, "300y": 300 * YEAR}
    async with world.engine([sleeps, sleeps_badly], evict_after="20ms") as engine:
        for name, seconds in spans.items():
            await engine.start(sleeps, seconds, id=name)
        assert await engine.run(sleeps, 0) == "slept"
        assert await engine.run(sleeps_badly, "") == [*BAD, "asyncio nan", "asyncio 1000000000000.0"]
        for bad in BAD.values():
            for option in ("delay", "timeout"):
                with pytest.raises(ValueError, match=option):
                    await engine.start(sleeps, 0, **{option: bad})
        await until(lambda: world.rows("select count(*) from run where status = 'waiting'") == [(3,)])
        for name, seconds in spans.items():
            info = await engine.get(name).info()
            claimed = next(event.at for event in await engine.get(name).history() if event.type == "run_claimed")
            assert info.wake_at == claimed + timedelta(seconds=seconds)
    for bad in BAD.values():
        with pytest.raises(ValueError, match="initial"):
            Retry(initial=bad)
        with pytest.raises(ValueError, match="timeout"):
            step(timeout=bad)(note)
        with pytest.raises(ValueError, match="lease"):
            perdure.Engine(world.url, lease=bad)
    real = time.clock_gettime_ns
    skew.seconds = 30 * 86_400
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: real(clock) + 30 * 86_400 * 10**9)
    async with world.engine([sleeps]) as engine:
        assert await engine.get("30d").result(timeout=30) == "slept"
        assert await engine.get("400d").status() == await engine.get("300y").status() == Status.WAITING


@everywhere
async def test_case_tim_16(world: World, skew: Skew) -> None:
    """A delayed job runs early because its due time was computed on one clock and is compared with another.

    Clients whose wall clock is ten minutes slow and ten minutes fast enqueue with a delay; a worker with a wrong clock
    sleeps. All begin on time by the database's clock. Source: Particular/NServiceBus.SqlServer#463, fluxcd/flux#430.
    """
    started: dict[str, float] = {}
    async with world.engine(evict_after="50ms") as engine:
        for name, seconds in (("slow", -600.0), ("fast", 600.0)):
            skew.seconds = seconds
            async with world.client() as client:
                started[name] = time.monotonic()
                await client.start(flows.trivial, id=name, delay=1.5)
        async with world.engine(name="skewed"):
            started["sleeper"] = time.monotonic()
            await engine.start(flows.plain_sleep, 1.5, id="sleeper")
            for name in started:
                await engine.get(name).result(timeout=30)
    for name, at in started.items():
        assert 1.49 <= world.ledger.entries("last", name)[0].at - at < 10, name


@step
async def fail_soon() -> None:
    note()
    await asyncio.sleep(0.2)
    raise ValueError("the member failed")


@step
async def at_once(n: int) -> int:
    note()
    return n


@workflow
async def races() -> list[Any]:
    failing, sleeping = asyncio.create_task(fail_soon()), asyncio.create_task(asyncio.sleep(30))
    done, left = await asyncio.wait([failing, sleeping], return_when=asyncio.FIRST_COMPLETED)
    found: list[Any] = [type(task.exception()).__name__ for task in done]
    for task in left:
        task.cancel()
    two = [asyncio.create_task(at_once(n)) for n in (1, 2)]
    first, _ = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
    found.append(sorted(task.result() for task in first))
    await asyncio.gather(*two)
    finished, _ = await asyncio.wait([two[0], asyncio.create_task(asyncio.sleep(30))], return_when="FIRST_COMPLETED")
    found.append([task.result() for task in finished])
    note("found", value=found)
    await asyncio.sleep(0.3)
    return found


async def test_case_tim_18(world: World) -> None:
    """First-of with a failing member hangs, or fails with an internal error.

    A failing step against a long sleep; two steps done at the same time; a task that is done already. The failed branch
    comes with its exception; ties fall the same way when the run is replayed by another engine.
    Source: microsoft/durabletask-python PR#15, Azure/azure-functions-durable-python PR#538.
    """
    async with world.engine([races], evict_after="20ms") as engine:
        began = time.monotonic()
        run = await engine.start(races, id="r")
        await until(lambda: world.rows("select status from run") == [("waiting",)])
        assert time.monotonic() - began < 5
    async with world.engine([races]) as engine:
        found = await engine.get(run.id).result(timeout=30)
    assert found[0] == "ValueError"
    assert found[1] in ([1], [1, 2])
    assert found[2] == [1]
    assert all(entry.value == found for entry in world.ledger.entries("found"))
    assert world.ledger.count("found") == 2
    assert world.ledger.count("fail_soon") == 1
    assert world.ledger.count("at_once") == 2


@pytest.mark.parametrize("runs,fresh", [(400, 8), pytest.param(20_000, 20, marks=[pytest.mark.nightly])])
async def test_case_tim_24(world: World, runs: int, fresh: int) -> None:
    """Thousands of timers due at once block everything else.

    Sleeping runs that are all due in the same second, two workers, and one fresh run after the other meanwhile: each
    begins within 3 s; all runs finish, none twice. Source: camunda/camunda#11594.
    """
    async with world.client() as client:
        due = datetime.now(UTC) + timedelta(seconds=1 + runs / 2_000)
        for n in range(0, runs, 200):
            delay = max(0.0, (due - datetime.now(UTC)).total_seconds())
            batch = [client.start(flows.trivial, n, id=f"r{n + k}", delay=delay) for k in range(min(200, runs - n))]
            await asyncio.gather(*batch)
        async with world.engine(name="A"), world.engine(name="B"):
            for n in range(fresh):
                began = time.monotonic()
                run = await client.start(flows.trivial, n, id=f"fresh{n}")
                await run.result(timeout=3)
                await asyncio.sleep(max(0.0, began + 0.2 - time.monotonic()))
            left = "select count(*) from run where status <> 'completed'"
            await until(lambda: world.rows(left) == [(0,)], 120)
    assert set(world.ledger.counts("last").values()) == {1}
    assert len(world.ledger.counts("last")) == runs + fresh
