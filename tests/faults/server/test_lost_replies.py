"""Answers to COMMIT that are lost under load: each is found out by our own ids; nothing is lost, nothing done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.server.scene import Scene
from tests.process import Spawner
from tests.servers.fixtures import Database, Servers
from tests.servers.proxy import Where

pytestmark = pytest.mark.serial
SERVERS = pytest.mark.parametrize("kind", ["mariadb", "postgres"])
LOG = r"\bevent\b"
PLACES: list[Where] = ["before", "after", "mid-reply"]


def campaign(servers: Servers, spawn: Spawner, folder: Path, kind: str, cuts: int) -> int:
    server = servers.start(kind)
    database = Database(server, server.new_database())
    proxy = servers.proxy(server)
    scene = Scene(spawn, folder, database, url=server.url(database.name, port=proxy.port))
    load = scene.start("both", "w")
    load.expect("ended")
    for number in range(cuts):
        proxy.on_commit(PLACES[number % 3], touching=LOG)
        proxy.await_cuts(number + 1)
        load.listen(0)
    scene.end(load)
    return scene.check(load)


@pytest.mark.parametrize("kind", [pytest.param("mariadb", marks=pytest.mark.nightly), "postgres"])
def test_lost_answers_cost_time_and_nothing_else(
    servers: Servers, spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    runs = campaign(servers, spawn, tmp_path, kind, 24)
    with capsys.disabled():
        print(f"\n{kind}: 24 answers to COMMIT lost in {runs} runs", end="")


@SERVERS
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_thousand_lost_answers_cost_time_and_nothing_else(
    servers: Servers, spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    runs = campaign(servers, spawn, tmp_path, kind, 1002)
    with capsys.disabled():
        print(f"\n{kind}: 1002 answers to COMMIT lost in {runs} runs", end="")
