"""What binding costs where it is hot: nothing that can be counted, and nothing that can be told from noise."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import pytest

import perdure
from perdure import Engine
from perdure.cli.commands.worker import OLD, YOUNG

PAIRS = 12
RUNS, STEPS = 2_000, 5


@perdure.step
async def work(number: int) -> str:
    return f"result {number}"


@perdure.workflow(name="bound", version="1.0.0")
async def bound(number: int) -> int:
    for n in range(STEPS):
        await work(n)
    return number


@perdure.workflow(name="unbound", unversioned=True)
async def unbound(number: int) -> int:
    for n in range(STEPS):
        await work(n)
    return number


async def taken(engine: Engine, flow: perdure.Workflow[[int], Coroutine[Any, Any, int]]) -> tuple[float, float]:
    """Return seconds, and seconds of processor time, of a few hundred runs."""
    began, cpu = perf_counter(), process_time()
    await asyncio.gather(*(engine.run(flow, n) for n in range(RUNS)))
    return perf_counter() - began, process_time() - cpu


@pytest.mark.bench
@pytest.mark.usefixtures("collector")
@pytest.mark.timeout(600)
async def test_a_bound_run_costs_what_an_unbound_one_does(tmp_path: Path) -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLD, OLD)  # as in `perdure worker`
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}", [bound, unbound], concurrency=200) as engine:
        await taken(engine, bound)
        await taken(engine, unbound)
        for pair in range(PAIRS):
            order = (bound, unbound) if pair % 2 else (unbound, bound)
            times = {flow.name: await taken(engine, flow) for flow in order}
            ratios.append(times["bound"][0] / times["unbound"][0])
            cpu_ratios.append(times["bound"][1] / times["unbound"][1])
    print(f"\nbound to unbound, median of {PAIRS} pairs of {RUNS} runs: {median(ratios):.3f} in time, "
          f"{median(cpu_ratios):.3f} in processor time")  # fmt: skip
