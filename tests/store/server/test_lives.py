"""Worker processes on database servers: killed, and taken over; and connections cut under them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from perdure.store.base import StoreOptions, open_store
from tests.process import Child, Spawner
from tests.servers.fixtures import KINDS, Database, Servers

pytestmark = pytest.mark.serial
PROGRAM = """
import asyncio, sys
import perdure

@perdure.step
async def add(n: int) -> int:
    print("add", n, flush=True)
    if n == 3 and sys.argv[2] == "first":
        await asyncio.sleep(3600)
    return n + 1

@perdure.workflow(unversioned=True)
async def count(until: int) -> int:
    n = 0
    while n < until:
        n = await add(n)
    return n

async def many(engine):
    async def one(number):
        run = await engine.start(count, 20, id=f"run-{number}")
        print("started", number, flush=True)
        assert await run.result() == 20
        print("ended", number, flush=True)
    for first in range(0, int(sys.argv[3]), 20):
        await asyncio.gather(*(one(number) for number in range(first, first + 20)))
    print("all", flush=True)

async def main(url, role):
    async with perdure.Engine(url, [count], lease=1.0 if role in ("first", "second") else 10.0) as engine:
        if role == "many":
            await many(engine)
            return
        if role == "first":
            await engine.start(count, 6, id="run-1")
            await asyncio.Event().wait()
        print("result", await engine.get("run-1").result(), flush=True)

asyncio.run(main(*sys.argv[1:3]))
"""


def start(spawn: Spawner, url: str, *argv: str) -> Child:
    return spawn.python(PROGRAM, url, *argv, env={"PYTHONPATH": ":".join(sys.path)})


def types_of(url: str, *run_ids: str) -> list[list[str]]:
    """Give the types of the events of logs, each of which is checked while it is read."""
    store = open_store(url, StoreOptions())
    store.open()
    try:
        return [[event.type for event in store.load(run_id)] for run_id in run_ids]
    finally:
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_a_killed_worker_goes_on_elsewhere_from_its_last_record(
    spawn: Spawner, new_database: Callable[[str], Database], kind: str
) -> None:
    url = new_database(kind).url
    first = start(spawn, url, "first")
    first.expect("add 3", 20)
    first.destroy()
    killed = time.monotonic()
    second = start(spawn, url, "second")
    second.expect("result 6", 20)
    assert time.monotonic() - killed < 20
    assert second.finish().code == 0
    assert [line for line in second.out.splitlines() if line.startswith("add")] == ["add 3", "add 4", "add 5"]
    types = Counter(types_of(url, "run-1")[0])
    assert types["step_completed"] == 6
    assert types["run_claimed"] == 2
    assert types["run_completed"] == 1


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_connections_that_are_cut_cost_time_and_nothing_else(spawn: Spawner, servers: Servers, kind: str) -> None:
    server = servers.start(kind)
    name = server.new_database()
    worker = start(spawn, server.url(name), "many", "100")
    cut = 0
    for place in range(0, 100, 20):
        worker.expect(f"started {place}", 30)
        by = time.monotonic() + 5
        found = 0
        while not found and time.monotonic() < by:  # it has not connected again since the last time
            found = server.cut_connections(name)
        cut += found
    worker.expect("all", 40)
    assert worker.finish().code == 0, worker.err
    assert cut >= 3
    for types in types_of(server.url(name), *(f"run-{number}" for number in range(100))):
        assert Counter(types)["step_completed"] == 20
        assert types.count("run_completed") == 1
