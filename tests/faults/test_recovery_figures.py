"""How fast a long run and many runs are taken over. The figures are printed; the bounds are generous."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from tests.process import Child, Spawner

STEPS, KILLED_AT = 10_000, 9_900
LEASE_S = 1.0
PROGRAM = """
import asyncio, os, sys, time
import perdure
from perdure.bench.process import memory_mb

@perdure.step
async def count(n: int) -> str:
    if n == int(os.environ.get("STOP_AT", "-1")):
        print("there", flush=True)
        await asyncio.sleep(3600)
    return f"{n:0100d}"

@perdure.workflow(unversioned=True)
async def long(steps: int) -> int:
    for n in range(steps):
        await count(n)
        if n == int(os.environ.get("TELL_AT", "-1")):
            print("resumed", time.time(), flush=True)
    return steps

@perdure.step
async def linger() -> None:
    await asyncio.sleep(float(os.environ["LINGER"]))

@perdure.workflow(unversioned=True)
async def slow() -> str:
    await linger()
    return "done"

async def main(url, what):
    engine = perdure.Engine(url, [long, slow], lease=1.0, poll=0.1, concurrency=600, max_deaths=10)
    async with engine:
        if what == "long":
            await engine.start(long, int(sys.argv[3]), id="long")
        elif what == "many":
            for n in range(int(sys.argv[3])):
                await engine.start(slow, id=f"slow-{n}")
            print("there", flush=True)
        elif what == "take":
            print("ready", flush=True)
        if what == "long" and "STOP_AT" not in os.environ:
            assert await engine.get("long").result() == int(sys.argv[3])
            print("peak", round(memory_mb(peak=True)), flush=True)
            return
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def start(spawn: Spawner, path: Path, *argv: str, **env: str) -> Child:
    return spawn.python(PROGRAM, f"sqlite:///{path}", *argv, env={"PYTHONPATH": ":".join(sys.path), **env})


def rows(path: Path, sql: str) -> list[tuple[int, int]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.serial
def test_a_run_of_10000_steps_killed_near_its_end_goes_on_quickly_and_in_little_memory(
    spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.db"
    first = start(spawn, path, "long", str(STEPS), STOP_AT=str(KILLED_AT))
    first.expect("there", within=60)
    first.send(signal.SIGKILL)
    first.destroy()
    second = start(spawn, path, "long", str(STEPS), TELL_AT=str(KILLED_AT))
    resumed = float(second.expect("resumed", within=30).split()[1])
    peak = int(second.expect("peak", within=30).split()[1])
    ((claimed, seq),) = rows(path, "select at, seq from event where type = 'run_claimed' order by seq desc limit 1")
    took = resumed - claimed / 1_000_000
    with capsys.disabled():
        print(f"\nresumed {took:.2f} s after its claim at event {seq}; peak memory {peak} MB", end="")
    assert seq > KILLED_AT
    assert took < 5
    assert peak < 150
    assert rows(path, "select count(*), count(distinct op) from event where type = 'step_completed'") == [
        (STEPS, STEPS)
    ]


@pytest.mark.serial
def test_500_runs_of_a_killed_worker_are_taken_over_within_its_lease_and_a_second(
    spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "many.db"
    first = start(spawn, path, "many", "500", LINGER="3600")
    first.expect("there", within=30)
    second = start(spawn, path, "take", LINGER="0.2")
    second.expect("ready", within=20)
    ((before, _),) = rows(path, "select count(*), 0 from event where type = 'run_claimed'")
    assert before == 500
    os.kill(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    while rows(path, "select count(*), 0 from event where type = 'run_claimed'")[0][0] < 1000:
        assert time.monotonic() < killed + 20, "not all runs were taken over"
        time.sleep(0.02)
    took = time.monotonic() - killed
    while rows(path, "select count(*), 0 from run where status = 'completed'")[0][0] < 500:
        assert time.monotonic() < killed + 40, "not all runs have ended"
        time.sleep(0.05)
    with capsys.disabled():
        print(f"\n500 runs taken over {took:.2f} s after the kill, with a lease of {LEASE_S:g} s", end="")
    assert took < LEASE_S + 5
    assert rows(path, "select count(*), max(epoch) from event where type = 'run_claimed'") == [(1000, 2)]
    assert rows(path, "select count(*), max(attempt) from event where type = 'step_completed'") == [(500, 1)]
