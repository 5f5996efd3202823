"""Worker processes on PostgreSQL: killed, and taken over."""

from __future__ import annotations

import sys
import time

import pytest

from tests.process import Child, Spawner
from tests.servers.fixtures import Database

PROGRAM = """
import asyncio, sys
import perdure

@perdure.step
async def add(n: int) -> int:
    print("add", n, flush=True)
    if n == 3 and sys.argv[2] == "first":
        await asyncio.sleep(3600)
    return n + 1

@perdure.workflow
async def count(until: int) -> int:
    n = 0
    while n < until:
        n = await add(n)
    return n

async def main(url, role):
    async with perdure.Engine(url, [count], lease=1.0) as engine:
        if role == "first":
            await engine.start(count, 6, id="run-1")
            await asyncio.Event().wait()
        print("result", await engine.get("run-1").result(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def start(spawn: Spawner, database: Database, role: str) -> Child:
    return spawn.python(PROGRAM, database.url, role, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.timeout(60)
def test_a_run_of_a_killed_worker_goes_on_elsewhere_from_its_last_record(spawn: Spawner, postgres_db: Database) -> None:
    first = start(spawn, postgres_db, "first")
    first.expect("add 3")
    first.destroy()
    killed = time.monotonic()
    second = start(spawn, postgres_db, "second")
    second.expect("result 6")
    assert time.monotonic() - killed < 20
    assert second.finish().code == 0
    assert [line for line in second.out.splitlines() if line.startswith("add")] == ["add 3", "add 4", "add 5"]
    rows = postgres_db.execute("select seq, type from perdure.event where run_id = 'run-1' order by seq")
    assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    assert [kind for _, kind in rows].count("step_completed") == 6
    assert [kind for _, kind in rows].count("run_claimed") == 2
    assert rows[-1][1] == "run_completed"
