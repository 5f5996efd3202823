"""The figures that need a history: recovery of a long run after ``kill -9``, and many runs asleep."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from perdure.api.engine import Engine
from perdure.bench.figure import Figure
from perdure.bench.measure import check
from perdure.bench.process import cpu_s, memory_mb, settle
from perdure.bench.site import Site
from perdure.bench.workload import WORKFLOWS, Load, long_run, nap, some_steps

if TYPE_CHECKING:
    from perdure.api.engine import Engine as AnyEngine

LEASE = "1s"
RUN = "long"
PAIRS = 200
AN_HOUR = 3600.0


def _open(site: Site, name: str, load: Load, **options: object) -> Engine:
    return Engine(site.url(name), WORKFLOWS, concurrency=load.concurrency, **options)  # type: ignore[arg-type]


async def doomed(site: Site, load: Load) -> list[Figure]:
    """Begin the long run. This process kills itself in the middle of a step and reports nothing."""
    settle()
    async with _open(site, "long", load, lease=LEASE) as engine:
        await engine.run(long_run, load.long, load.killed_at, str(site.folder / "killed"), id=RUN)
    message = "the worker was not killed"
    raise RuntimeError(message)


async def recovery(site: Site, load: Load) -> list[Figure]:
    """Resume the run that `doomed` left, and read from its log how long that took."""
    check(site.count("long", "step_completed"), load.killed_at - 1, "steps before the kill")
    settle()
    async with _open(site, "long", load, lease=LEASE) as engine:
        result = await engine.get(RUN).result()
        peak = memory_mb(peak=True)
        history = await engine.get(RUN).history()
    check(result, load.long, "steps in the result")
    done = [event for event in history if event.type == "step_completed"]
    check(len({event.op for event in done}), load.long, "different steps")
    claimed = next(event for event in reversed(history) if event.type == "run_claimed")
    first = next(event for event in done if event.seq > claimed.seq)
    resumed = (first.at - claimed.at).total_seconds()
    ended = (history[-1].at - claimed.at).total_seconds()
    return [
        Figure(name="recovery, claim to next step", value=resumed * 1e3, unit="ms", better="lower"),
        Figure(name="recovery, claim to end of run", value=ended * 1e3, unit="ms", floor=1_000, better="lower"),
        Figure(name="recovery, peak memory", value=peak, unit="MB", floor=150, better="lower"),
    ]


async def lull(site: Site, load: Load) -> list[Figure]:
    """Bring many runs to sleep. What `idle` then finds; reports how fast it went."""
    began = perf_counter()
    async with _open(site, "asleep", load, evict_after="40ms") as engine:
        for first in range(0, load.asleep, 5_000):
            count = min(5_000, load.asleep - first)
            await asyncio.gather(*(engine.start(nap, AN_HOUR) for _ in range(count)))
        while await _awake(engine):  # noqa: ASYNC110 - the database is asked, nothing here knows
            await asyncio.sleep(0.2)
    return [Figure(name="runs put to sleep", value=load.asleep / (perf_counter() - began), unit="/s")]


async def _awake(engine: AnyEngine) -> bool:
    return bool([info async for info in engine.list(status=("pending", "running"), limit=1)])


async def idle(site: Site, load: Load) -> list[Figure]:
    """Watch a worker that has nothing to do but to know of many sleeping runs; then start runs among them."""
    async with _open(site, "asleep", load) as engine:
        settle()
        await asyncio.sleep(1)
        cpu, began = cpu_s(), perf_counter()
        await asyncio.sleep(load.idle_s)
        share = (cpu_s() - cpu) / (perf_counter() - began) * 100
        memory = memory_mb(peak=False)
        async with _open(site, "empty", load) as other:
            among, empty = await _in_turn(engine, other)
        asleep = len([info async for info in engine.list(status="waiting")])
    check(asleep, load.asleep, "sleeping runs")
    ratio = median(among) / median(empty)
    return [
        Figure(name="idle worker, processor", value=share, unit="%", floor=1, better="lower"),
        Figure(name="idle worker, memory", value=memory, unit="MB", floor=120, better="lower"),
        Figure(name="start among sleepers", value=median(among) * 1e6, unit="us", better="lower"),
        Figure(name="start in an empty database", value=median(empty) * 1e6, unit="us", better="lower"),
        Figure(name="start among sleepers, to empty", value=ratio, unit="x", floor=1.2, better="lower"),
    ]


async def _in_turn(full: AnyEngine, empty: AnyEngine) -> tuple[list[float], list[float]]:
    """Start runs in both databases in turn, so that whatever the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(PAIRS + 20):
        for engine, found in zip((full, empty), times, strict=True):
            began = perf_counter()
            run = await engine.start(some_steps, 1)
            if number >= 20:
                found.append(perf_counter() - began)
            await run.result()
    return times
