"""Many workers on one server database: killed, frozen, restarted, with wrong clocks, and idle."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from tests.faults.server.scene import Scene
from tests.process import Child, Spawner
from tests.servers.fixtures import Database, Servers

pytestmark = pytest.mark.serial
# What a worker does when another one dies is the same on all servers.
SERVERS = pytest.mark.parametrize("kind", [pytest.param("mariadb", marks=pytest.mark.nightly), "postgres"])
LEASE_S = 2.0
SPAN_S = 7


@pytest.fixture
def scene(spawn: Spawner, tmp_path: Path, new_database: Callable[[str], Database], kind: str) -> Scene:
    return Scene(spawn, tmp_path, new_database(kind), steps=30)


def owned(scene: Scene, name: str) -> int:
    """Give how many runs the workers of a name own."""
    ((count,),) = scene.database.rows(
        "select count(*) from run where owner in (select id from worker where name = ?)", name
    )
    return int(count)


def owns(scene: Scene, name: str, runs: int) -> None:
    deadline = time.monotonic() + 20
    while owned(scene, name) < runs:
        assert time.monotonic() < deadline, f"{name} has {owned(scene, name)} runs"
        time.sleep(0.02)


@SERVERS
def test_the_runs_of_a_killed_worker_are_taken_over_within_the_lease_and_a_second(
    scene: Scene, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = [scene.start("worker", f"w{number}", lease=LEASE_S, concurrency=20) for number in range(3)]
    client = scene.start("client", "c", lanes=50)
    owns(scene, "w0", 10)
    workers[0].destroy()
    killed = time.monotonic()
    runs = owned(scene, "w0")
    while owned(scene, "w0"):
        assert time.monotonic() - killed < 20
        time.sleep(0.02)
    taken = time.monotonic() - killed
    scene.end(client)
    scene.check(client, interrupted=runs)
    with capsys.disabled():
        print(f"\n{kind}: {runs} runs of a killed worker taken over after {taken:.2f} s, lease {LEASE_S:.0f} s", end="")
    assert runs >= 10
    assert taken <= LEASE_S + 1


@pytest.mark.nightly
@SERVERS
def test_a_herd_of_workers_that_starts_at_one_moment_takes_every_run_once(scene: Scene, kind: str) -> None:
    client = scene.start("client", "c", lanes=120)
    while len({line for line in client.out.splitlines() if line.startswith("started")}) < 120:
        client.expect("started", 20)
    workers = [scene.start("worker", f"w{number}", wait=False, concurrency=20) for number in range(6)]
    client.expect("ended", 30)
    scene.end(client)
    assert scene.check(client) >= 120
    claims = scene.database.rows("select run_id from event where type = 'run_claimed' group by 1 having count(*) > 1")
    assert claims == []
    assert all(each.process.poll() is None for each in workers)
    assert len({line.worker for line in scene.lines()}) >= 3


@pytest.mark.nightly
@SERVERS
def test_workers_of_one_name_are_replaced_one_by_one_under_load(scene: Scene, kind: str) -> None:
    """A rolling restart: the old one and its successor have the same name. Nothing is interrupted."""
    workers = [scene.start("worker", "same", lease=LEASE_S, concurrency=20) for _ in range(3)]
    client = scene.start("client", "c", lanes=30)
    for place in range(3):
        client.expect("ended", 20)
        successor = scene.start("worker", "same", lease=LEASE_S, concurrency=20)
        workers[place].send(signal.SIGTERM)
        assert workers[place].finish().code == 0
        workers[place] = successor
    scene.end(client)
    assert scene.check(client) >= 30


@pytest.mark.nightly
@SERVERS
def test_a_worker_that_was_frozen_does_no_harm_when_it_wakes(scene: Scene, kind: str) -> None:
    frozen, *_ = (scene.start("worker", f"w{number}", lease=1, concurrency=20) for number in range(3))
    client = scene.start("client", "c", lanes=50)
    owns(scene, "w0", 10)
    for _ in range(2):
        frozen.send(signal.SIGSTOP)
        time.sleep(2)
        frozen.send(signal.SIGCONT)
        frozen_again(frozen)
        owns(scene, "w0", 5)
    scene.end(client)
    scene.check(client, interrupted=2 * 20)


def frozen_again(worker: Child) -> None:
    """Wait until a worker has learnt that it was declared dead and goes on under a new id."""
    deadline = time.monotonic() + 15
    while "goes on under a new id" not in worker.err:
        assert time.monotonic() < deadline, worker.err
        time.sleep(0.02)


CLOCK = """
import itertools, runpy, sys, time
real, real_ns, begin = time.time, time.time_ns, time.monotonic()
DAY = 86400

def jump():
    # Every half second the clock is set: a day ahead, then a day back.
    return DAY if int((time.monotonic() - begin) * 2) % 2 else -DAY

time.time = lambda: real() + jump()
time.time_ns = lambda: real_ns() + jump() * 1_000_000_000
runpy.run_module("tests.faults.server.load", run_name="__main__", alter_sys=True)
"""


@SERVERS
def test_a_clock_that_jumps_by_a_day_changes_nothing(scene: Scene, kind: str) -> None:
    """Leases and timers follow the clock of the server."""
    jumping = scene.start_script(CLOCK, "worker", "jumping", lease=1, concurrency=20)
    steady = scene.start("worker", "steady", lease=1, concurrency=20)
    client = scene.start("client", "c", lanes=60)
    began = time.monotonic()
    while time.monotonic() - began < 3:
        client.expect("ended", 20)
    scene.end(client)
    scene.check(client)
    assert {line.worker for line in scene.lines()} == {"jumping", "steady"}
    for each in (jumping, steady):
        assert "dead" not in each.err
    ((earliest, latest),) = scene.database.rows("select min(at), max(at) from event")
    assert latest - earliest < 60_000_000


@perdure.workflow
async def nothing() -> None:
    """Is never started."""


# Without hints a worker has to learn first how many others look, too.
@pytest.mark.parametrize("kind,settling_s", [("mariadb", 9), ("postgres", 2)])
async def test_twenty_idle_workers_ask_less_than_twenty_times_a_second(
    servers: Servers, new_database: Callable[[str], Database], kind: str, settling_s: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What counts is every statement that the server executes, however many come together."""
    database = new_database(kind)
    proxy = servers.proxy(database.server)
    url = database.server.url(database.name, port=proxy.port)

    def executed() -> int:
        if kind == "postgres":
            return proxy.statements.total()
        ((_, questions),) = database.execute("show global status like 'Questions'")
        return int(questions)

    engines = [perdure.Engine(url, [nothing], name=f"w{number}") for number in range(20)]
    for engine in engines:
        await engine.open()
    await asyncio.sleep(settling_s)
    before, began = executed(), time.monotonic()
    await asyncio.sleep(SPAN_S)
    rate = (executed() - before) / (time.monotonic() - began)
    await asyncio.gather(*(engine.close() for engine in engines))
    with capsys.disabled():
        print(f"\n{kind}: 20 idle workers cost {rate:.1f} statements a second", end="")
    assert 5 < rate < 20
