"""Takes the figures. Each function here runs in a process of its own; see `perdure.bench.child`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any

from perdure.api.decorators import Workflow
from perdure.api.engine import Engine
from perdure.bench.figure import Figure
from perdure.bench.floor import Floor
from perdure.bench.process import cpu_s, settle
from perdure.bench.profile import Profile
from perdure.bench.site import Site
from perdure.bench.workload import STEP_TIMES, WORKFLOWS, Load, some_steps, some_sync_steps, timed_steps

WARM_UP = 100


class Place:
    """A site with databases, each used for one round."""

    def __init__(self, site: Site, load: Load) -> None:
        self.site = site
        self.load = load
        self.floor: Floor = Floor(site.bare, load.floor_s)
        self._count = 0
        self.database: str = "none"
        self.stored: tuple[float, float] = (0.0, 0.0)
        """Rows and bytes per step of the last round."""

    def fresh(self, **options: Any) -> Engine:
        """Return an engine on a database of its own, not yet open."""
        self._count += 1
        self.database = f"round-{self._count}"
        return Engine(self.site.url(self.database), WORKFLOWS, concurrency=self.load.concurrency, **options)

    async def rounds(self, take: Callable[[], Awaitable[None]]) -> None:
        """Take a figure several times, and a sample of the floor before, between and after."""
        self.floor.sample()
        for _ in range(self.load.rounds):
            await take()
            self.floor.sample()


def check(found: int, expected: int, what: str) -> None:
    """Refuse to report a figure of work that was not done."""
    if found != expected:
        message = f"measured nothing: {found} {what} recorded, {expected} expected"
        raise RuntimeError(message)


async def machine(place: Place) -> list[Figure]:
    """Measure the machine alone."""
    for _ in range(place.load.rounds):
        place.floor.sample()
        place.floor.sample_bulk()
    floor = place.floor
    return [
        Figure(name="single-row commits", value=floor.commits_per_s, unit="/s", samples=floor.rates),
        Figure(name="rows, 1,000 a transaction", value=median(floor.bulk), unit="/s", samples=floor.bulk),
    ]


async def _throughput(
    place: Place, workflow: Workflow[[int], Any], profile: Profile | None
) -> tuple[list[float], list[float]]:
    load = place.load
    total = load.runs * load.steps
    rates: list[float] = []
    costs: list[float] = []

    async def take() -> None:
        async with place.fresh() as engine:
            await asyncio.gather(*(engine.run(workflow, 1) for _ in range(WARM_UP)))
            settle()
            with profile or Profile(enabled=False):
                cpu, began = cpu_s(), perf_counter()
                await asyncio.gather(*(engine.run(workflow, load.steps) for _ in range(load.runs)))
                seconds, used = perf_counter() - began, cpu_s() - cpu
        rates.append(total / seconds)
        costs.append(used / total * 1e6)
        check(place.site.count(place.database, "step_completed"), total + WARM_UP, "steps")
        rows, size = place.site.stored(place.database)
        place.stored = rows / (total + WARM_UP), size / (total + WARM_UP)

    await place.rounds(take)
    return rates, costs


async def steps(place: Place) -> list[Figure]:
    """Measure many runs of a few async steps, every result recorded before the next step begins."""
    profile = Profile(enabled=place.load.profile)
    rates, costs = await _throughput(place, some_steps, profile)
    floor = place.floor
    ratio = median(rates) / floor.commits_per_s
    marks = place.site.marks
    return [
        Figure(name="steps", value=median(rates), unit="/s", samples=rates),
        Figure(name="floor: single-row commits", value=floor.commits_per_s, unit="/s", samples=floor.rates),
        Figure(name="steps per single-row commit", value=ratio, unit="x", **marks.steps._asdict()),
        Figure(
            name="processor time per step",
            value=median(costs),
            unit="us",
            samples=costs,
            better="lower",
            **marks.processor._asdict(),
        ),
        Figure(name="rows per step", value=place.stored[0], unit="", better="lower"),
        Figure(name="bytes per step", value=place.stored[1], unit="", better="lower"),
        *profile.figures(median(costs)),
    ]


async def sync(place: Place) -> list[Figure]:
    """Measure the same with sync steps."""
    rates, costs = await _throughput(place, some_sync_steps, None)
    return [
        Figure(name="sync steps", value=median(rates), unit="/s", samples=rates),
        Figure(name="sync steps per single-row commit", value=median(rates) / place.floor.commits_per_s, unit="x"),
        Figure(name="processor time per sync step", value=median(costs), unit="us", samples=costs),
    ]


async def sequence(place: Place) -> list[Figure]:
    """Measure one run of many steps in sequence, step by step."""
    medians: list[float] = []

    async def take() -> None:
        async with place.fresh() as engine:
            await engine.run(timed_steps, WARM_UP)
            settle()
            await engine.run(timed_steps, place.load.chain)
            medians.append(median(STEP_TIMES) * 1e6)
        check(place.site.count(place.database, "step_completed"), place.load.chain + WARM_UP, "steps")

    await place.rounds(take)
    return [
        Figure(name="step in sequence", value=median(medians), unit="us", samples=medians, better="lower"),
        Figure(name="floor: one single-row commit", value=place.floor.commit_us, unit="us", better="lower"),
        Figure(
            name="step in sequence, in commits", value=median(medians) / place.floor.commit_us, unit="x",
            better="lower", **place.site.marks.sequence._asdict(),
        ),
    ]  # fmt: skip


async def latency(place: Place) -> list[Figure]:
    """Measure one-step runs from start to result, one after the other."""
    medians: list[float] = []

    async def take() -> None:
        times: list[float] = []
        async with place.fresh() as engine:
            await asyncio.gather(*(engine.run(some_steps, 1) for _ in range(WARM_UP)))
            settle()
            for _ in range(place.load.singles):
                began = perf_counter()
                await engine.run(some_steps, 1)
                times.append(perf_counter() - began)
        medians.append(median(times) * 1e6)

    await place.rounds(take)
    return [
        Figure(name="start to result", value=median(medians), unit="us", samples=medians, better="lower"),
        Figure(
            name="start to result, in commits", value=median(medians) / place.floor.commit_us, unit="x",
            better="lower", **place.site.marks.latency._asdict(),
        ),
    ]  # fmt: skip


async def starts(place: Place) -> list[Figure]:
    """Measure concurrent ``start`` calls: by a client alone, and with a worker that runs them in the same process."""
    rates: dict[bool, list[float]] = {False: [], True: []}

    async def take() -> None:
        for worker in (False, True):
            async with place.fresh(worker=worker) as engine:
                await asyncio.gather(*(engine.start(some_steps, 1) for _ in range(WARM_UP)))
                settle()
                began = perf_counter()
                runs = await asyncio.gather(*(engine.start(some_steps, 1) for _ in range(place.load.starts)))
                rates[worker].append(len(runs) / (perf_counter() - began))
            check(place.site.count(place.database, "run_started"), place.load.starts + WARM_UP, "starts")

    await place.rounds(take)
    mark = place.site.marks.starts._asdict()
    return [
        Figure(name="starts, client alone", value=median(rates[False]), unit="/s", samples=rates[False], **mark),
        Figure(name="starts, beside a worker", value=median(rates[True]), unit="/s", samples=rates[True]),
    ]
