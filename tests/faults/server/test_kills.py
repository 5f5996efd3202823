"""A database server that is killed and started again under load costs time, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.server.scene import Scene
from tests.process import Spawner
from tests.servers.fixtures import Database, Servers

pytestmark = pytest.mark.serial
SERVERS = pytest.mark.parametrize("kind", ["mariadb", "postgres"])


def campaign(
    servers: Servers, spawn: Spawner, folder: Path, kind: str, *, kills: int, every: float
) -> tuple[int, list[float]]:
    server = servers.start(kind)
    scene = Scene(spawn, folder, Database(server, server.new_database()))
    load = scene.start("both", "w")
    load.expect("ended")
    done: list[tuple[float, float]] = []
    for _ in range(kills):
        load.listen(every)
        killed = time.monotonic()
        server.kill()
        server.start()
        done.append((killed, time.monotonic()))
    load.listen(min(every, 3.0))
    scene.end(load)
    return scene.check(load), scene.recoveries(done)


@SERVERS
def test_a_killed_server_costs_time_and_nothing_else(
    servers: Servers, spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Killed twice. No run is lost, no step is recorded or done twice, the worker lives through it."""
    runs, recoveries = campaign(servers, spawn, tmp_path, kind, kills=2, every=1.8)
    with capsys.disabled():
        print(f"\n{kind}: killed 2 times, {runs} runs, back after {[round(s, 2) for s in recoveries]} s", end="")
    assert runs >= 50
    assert max(recoveries) < 4


@SERVERS
@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_killed_every_ten_seconds_for_two_minutes(
    servers: Servers, spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    runs, recoveries = campaign(servers, spawn, tmp_path, kind, kills=12, every=10.0)
    with capsys.disabled():
        print(f"\n{kind}: killed 12 times, {runs} runs, back after {[round(s, 2) for s in recoveries]} s", end="")
    assert runs >= 1000
    assert max(recoveries) < 2
