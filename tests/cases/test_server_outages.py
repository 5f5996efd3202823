"""Real complaints about outages of database servers: restarts, cut connections, poolers, idle time-outs."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Queue
from tests.cases import flows
from tests.cases.backends import KINDS, ON_POSTGRES, on_postgres
from tests.cases.conftest import ROOT, World, server_of
from tests.cases.ledger import PLACE, until
from tests.process import Spawner
from tests.servers.fixtures import Servers


async def latencies(world: World, client: perdure.Engine, name: str, count: int) -> list[float]:
    """Give how long single starts took to begin elsewhere, one after the other."""
    found = []
    for n in range(count):
        began = time.monotonic()
        run = await client.start(flows.trivial, n, id=f"{name}-{n}")
        await run.result(timeout=30)
        found.append(world.ledger.entries("last", run.id)[0].at - began)
        await asyncio.sleep(0.02)
    return found


FULL = [pytest.mark.nightly, pytest.mark.timeout(600)]


@on_postgres
@pytest.mark.parametrize("starts,rest", [(10, 1.5), pytest.param(20, 10.0, marks=FULL)])
async def test_case_dbb_09(world: World, starts: int, rest: float) -> None:
    """The channel of notifications is dropped and never opened again: the worker works on by slow polling only.

    The latency of single starts before and after every connection was cut. Polling alone would take 5 s at most.
    Source: taskforcesh/bullmq#4729, procrastinate-org/procrastinate PR#1425.
    """
    assert world.database is not None
    async with world.client() as client:
        world.worker("W1", poll="5s", lease="10s")
        before = await latencies(world, client, "before", starts)
        world.database.server.cut_connections(world.database.name)
        await asyncio.sleep(rest)
        after = await latencies(world, client, "after", starts)
    assert statistics.median(after) < 2 * statistics.median(before) + 0.3
    assert statistics.median(after) < 1


@pytest.mark.nightly
@pytest.mark.timeout(300)
@on_postgres
async def test_case_dbb_09_pooler(world: World, servers: Servers) -> None:
    """Through a pooler in transaction mode there is no channel: what is new begins within the poll interval.

    Also after the connections were cut; and a worker that has nothing to do keeps no processor busy.
    """
    assert world.database is not None
    pooler = servers.pgbouncer(server_of(world))
    direct, world.url = world.url, pooler.url(world.database.name)
    poll = 1.0
    worker = world.worker("W1", poll=f"{poll}s", lease="10s")
    world.url = direct
    async with world.client() as client:
        before = await latencies(world, client, "before", 20)
        server_of(world).cut_connections(world.database.name)
        used = cpu(worker.pid)
        await asyncio.sleep(10)
        busy = (cpu(worker.pid) - used) / 10
        after = await latencies(world, client, "after", 20)
    assert max(statistics.median(before), statistics.median(after)) < poll + 0.1
    assert busy < 0.05


def cpu(pid: int) -> float:
    """Give the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@ON_POSTGRES
@pytest.mark.parametrize(
    "seconds,timeout",
    [
        ([2.0, 0.0], 10),
        pytest.param([60.0, *[1.0] * 10], 10, marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
    ],
)
async def test_case_dbb_10(own: Callable[..., World], kind: str, seconds: list[float], timeout: float) -> None:
    """After an outage of a minute the worker has ended, or is up and never takes work again.

    Load all the time; the server is killed and stays away; the same process takes new work within ten seconds after its
    return, every run ends, and what is logged stays short. Source: procrastinate-org/procrastinate#1116,
    celery/celery#8030, celery/celery#10205, ansible/awx#2210.
    """
    world = own()
    child = world.worker("W1", lease="10s")
    async with world.client() as client:
        runs = [await client.start(flows.nap, 0.2, id="first")]
        for number, away in enumerate(seconds):
            await asyncio.to_thread(server_of(world).kill)
            started = asyncio.create_task(client.start(flows.nap, 0.2, id=f"during-{number}"))
            await asyncio.sleep(away)
            await asyncio.to_thread(server_of(world).start)
            runs.append(await started)
            after = await client.start(flows.trivial, number, id=f"after-{number}")
            assert await after.result(timeout=timeout) == number
            await asyncio.sleep(0.2)
        assert [await run.result(timeout=30) for run in runs] == ["rested"] * len(runs)
    child.send(signal.SIGTERM)
    assert child.finish().code == 0
    assert len(child.err.splitlines()) < 100
    assert set(world.ledger.counts("first").values()) == {1}


IDLE: dict[str, dict[str, str | int]] = {
    "postgres": {"idle_session_timeout": "2s", "idle_in_transaction_session_timeout": "2s"},
    "mariadb": {"wait_timeout": 2, "interactive_timeout": 2},
}


@pytest.mark.nightly
@KINDS
async def test_case_dbb_10_idle(own: Callable[..., World], kind: str) -> None:
    """Worker and client are idle for longer than the server keeps idle connections: both go on, without a word."""
    world = own(**IDLE[kind])
    child = world.worker("W1", lease="30s")
    async with world.client() as client:
        for n in range(2):
            assert await (await client.start(flows.trivial, n)).result(timeout=30) == n
            await asyncio.sleep(7)
        began = time.monotonic()
        assert await (await client.start(flows.trivial, 2)).result(timeout=30) == 2
        assert time.monotonic() - began < 10
    child.send(signal.SIGTERM)
    assert child.finish().code == 0
    assert [line for line in child.err.splitlines() if not line.startswith("INFO")] == []


@KINDS
async def test_case_dbb_10_at_the_start(own: Callable[..., World], kind: str, spawn: Spawner) -> None:
    """The database is down when the worker starts, and comes later: it waits, says so on one line, and takes work."""
    world = own()
    async with world.client() as client:
        run = await client.start(flows.two_steps, id="r1")
    server_of(world).stop()
    path = os.pathsep.join(map(str, (ROOT, Path(perdure.__file__).parents[1])))
    words = ("-m", "perdure", "worker", "tests.cases.flows", "--db", world.url)
    worker = spawn(sys.executable, *words, env={"PYTHONPATH": path, PLACE: str(world.ledger.path)})
    await until(lambda: "waiting for the database" in worker.err, what="the worker waits")
    await asyncio.sleep(1.5)
    await asyncio.to_thread(server_of(world).start)
    async with world.client() as client:
        assert await client.get(run.id).result(timeout=30) == ["one", "two"]
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 0
    waiting, ready, stopped = worker.err.splitlines()
    assert "waiting for the database" in waiting
    assert "is ready" in ready
    assert "has stopped" in stopped


@ON_POSTGRES
async def test_case_rec_01(own: Callable[..., World], kind: str) -> None:
    """The database restarts while another worker is recovering; what met the error is never looked at again.

    A worker is killed with 50 runs; while the next one takes them over, the database is killed and started again.
    Source: dbos-inc/dbos-transact-py#716.
    """
    world = own()
    async with world.client() as client:
        runs = [await client.start(flows.long_async, 1.0, id=f"r{n}") for n in range(50)]
        dead = world.worker("W1")
        await world.ledger.until("wait_async", 50)
        dead.destroy()
        killed = time.monotonic()
        world.worker("W2")
        await until(lambda: world.ledger.count("wait_async") > 50 or time.monotonic() > killed + 3, what="a take-over")
        await asyncio.to_thread(server_of(world).kill)
        await asyncio.sleep(1)
        await asyncio.to_thread(server_of(world).start)
        assert [await run.result(timeout=30) for run in runs] == ["a"] * 50
    assert world.rows("select count(*) from run where owner is not null") == [(0,)]


@ON_POSTGRES
async def test_case_rec_22_with_the_server(own: Callable[..., World], kind: str) -> None:
    """Worker and server are killed together, as by a power-cut; both are started again."""
    world = own()
    async with world.client(queues=[Queue("one", concurrency=1)]) as client:
        await client.start(flows.long_async, 1.0, id="r1", queue="one")
    killed = world.worker("W1", queues=["one"])
    await world.ledger.until("wait_async")
    killed.destroy()
    await asyncio.to_thread(server_of(world).kill)
    await asyncio.to_thread(server_of(world).start)
    world.worker("W1", queues=["one"])
    async with world.client() as client:
        after = await client.start(flows.two_steps, id="r2", queue="one")
        assert await client.get("r1").result(timeout=30) == "a"
        assert await after.result(timeout=30) == ["one", "two"]
        assert (await client.queue("one").info()).slots == 0
    assert world.ledger.count("wait_async", "r1") == 2
    assert world.ledger.entries("first", "r2")[0].at > world.ledger.entries("wait_async", "r1", "end")[-1].at
    assert world.rows("select count(*) from run where owner is not null") == [(0,)]
