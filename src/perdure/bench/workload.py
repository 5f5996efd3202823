"""The workloads, all of them, so that another engine can be measured with the same ones.

======== ==============================================================================
figure   workload
======== ==============================================================================
steps    many runs of a few async steps each, started at once; every result about 100 bytes
sync     the same with sync steps
sequence one run of many steps in sequence, timed step by step from inside the body
latency  one-step runs, one after the other, from start to result
starts   concurrent start calls, without a worker in the process
workers  what waits in a queue, done by one worker process and by two
recovery a long run, killed with ``kill -9`` near its end, resumed by another process
claims   claims from a queue in which ever more runs wait, and by many workers at once
idle     many runs that sleep for an hour, and starts among them
======== ==============================================================================
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from time import perf_counter

from perdure.api.decorators import step, workflow

FIGURES = ("steps", "sync", "sequence", "latency", "starts", "recovery")
"""What is measured unless told otherwise."""
ALL = (*FIGURES, "workers", "claims", "idle")
STEP_TIMES: list[float] = []
"""Seconds of each step of the last `sequence` run of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of everything.

    Attributes:
        runs: runs of the figures ``steps`` and ``sync``.
        steps: steps of each of them.
        concurrency: runs that may be active at once.
        rounds: how often each figure is taken; the median counts.
        chain: steps of the ``sequence`` run.
        singles: one-step runs of ``latency``.
        starts: concurrent ``start`` calls.
        long: steps of the run to recover.
        killed_at: step in which its worker is killed.
        queued: runs that wait, at the most, in ``claims``.
        asleep: sleeping runs of ``idle``.
        idle_s: how long the worker is watched doing nothing.
        floor_s: length of one sample of the machine's limits.
        profile: also sample where the processor time of ``steps`` goes.
    """

    runs: int = 2_000
    steps: int = 5
    concurrency: int = 200
    rounds: int = 5
    chain: int = 300
    singles: int = 200
    starts: int = 10_000
    long: int = 10_000
    killed_at: int = 9_900
    queued: int = 1_000_000
    asleep: int = 100_000
    idle_s: float = 20.0
    floor_s: float = 0.3
    profile: bool = False


def result(number: int) -> dict[str, object]:
    """Return a result of about 100 bytes of JSON."""
    return {"number": number, "status": "confirmed", "reference": f"ref-{number:012d}", "note": "n" * 36}


@step
async def work(number: int) -> dict[str, object]:
    """Do nothing, and return something to record."""
    return result(number)


@step
def work_sync(number: int) -> dict[str, object]:
    """Do nothing on a thread, and return something to record."""
    return result(number)


@workflow
async def some_steps(steps: int) -> int:
    """Run steps one after the other."""
    for number in range(steps):
        await work(number)
    return steps


@workflow
async def some_sync_steps(steps: int) -> int:
    """Run sync steps one after the other."""
    for number in range(steps):
        await work_sync.aio(number)
    return steps


@workflow
async def timed_steps(steps: int) -> int:
    """Run steps one after the other and note how long each took, its recording included."""
    STEP_TIMES.clear()
    for number in range(steps):
        began = perf_counter()
        await work(number)
        STEP_TIMES.append(perf_counter() - began)
    return steps


@step
async def work_or_die(number: int, deadly: int, mark: str) -> dict[str, object]:
    """Kill this process in step ``deadly``, the first time."""
    if number == deadly and not os.path.exists(mark):  # noqa: ASYNC240, PTH110 - two calls in a long run
        with open(mark, "x", encoding="utf-8"):  # noqa: ASYNC230, PTH123 - the process ends here
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return result(number)


@workflow
async def long_run(steps: int, deadly: int, mark: str) -> int:
    """Run many steps; the process dies in one of them, once."""
    for number in range(1, steps + 1):
        await work_or_die(number, deadly, mark)
    return steps


@workflow
async def nap(seconds: float) -> None:
    """Sleep durably."""
    await asyncio.sleep(seconds)


WORKFLOWS = (some_steps, some_sync_steps, timed_steps, long_run, nap)
