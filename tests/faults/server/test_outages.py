"""A server that is away, frozen or full: whoever works on it waits, with a limit to every wait, and goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pymysql
import pytest

import perdure
from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author, claims_for, worker
from tests.faults.server.scene import Scene
from tests.process import Spawner
from tests.servers.fixtures import Database, DatabaseServer, Servers
from tests.servers.mariadb import Mariadb

NIGHTLY = {kind: pytest.param(kind, marks=pytest.mark.nightly) for kind in ("mariadb", "postgres")}
ON_POSTGRES = pytest.mark.parametrize("kind", [NIGHTLY["mariadb"], "postgres"])
ON_MARIADB = pytest.mark.parametrize("kind", ["mariadb", NIGHTLY["postgres"]])
ON_NONE = pytest.mark.parametrize("kind", NIGHTLY.values())
"""Where a test belongs to the default suite; in the long campaigns it is run on both."""
FULL = (psycopg.OperationalError, pymysql.err.OperationalError)


@pytest.fixture
def database(servers: Servers, request: pytest.FixtureRequest) -> Database:
    """Give a database on a server of the test's own."""
    server = servers.start(request.getfixturevalue("kind"))
    return Database(server, server.new_database())


@ON_POSTGRES
@pytest.mark.serial
def test_an_outage_longer_than_the_lease_makes_nobody_do_anything_again(
    database: Database, servers: Servers, spawn: Spawner, tmp_path: Path, kind: str
) -> None:
    """All leases have ended when the database is back. Whoever looks first must not declare the others dead."""
    proxy = servers.proxy(database.server)
    scene = Scene(spawn, tmp_path, database, url=database.server.url(database.name, port=proxy.port))
    workers = [scene.start("worker", f"w{number}", lease="1s", concurrency=10) for number in range(2)]
    client = scene.start("client", "c")
    client.expect("ended", 20)
    for how in ("refuse", "freeze"):
        if how == "refuse":
            proxy.refuse()
            proxy.cut()
        else:
            proxy.freeze()
        time.sleep(2)
        proxy.refuse(refusing=False)
        proxy.thaw()
        time.sleep(1.2)
    scene.end(client)
    scene.check(client)
    assert {line.worker for line in scene.lines()} == {"w0", "w1"}
    for each in workers:
        assert "dead" not in each.err


@ON_MARIADB
def test_every_call_on_a_frozen_server_ends(database: Database, kind: str) -> None:
    """Frozen in the middle of its work, as by a stalled disk: connections stay, and nothing answers."""
    quick = "" if kind == "mariadb" else "?connect_timeout=2"
    store = open_store(database.url + quick, StoreOptions(busy_timeout_s=0.5))
    store.open()
    author = Author("run-1", store.now())
    store.commit([author.create(), author.claimed("w")])
    store.register(worker("w", store.now(), 60_000_000))
    step = author.step()
    calls: list[Callable[[], object]] = [
        lambda: store.commit([step]),
        lambda: store.claim(ClaimRequest("w", ("default",), ("0 order",), 10), claims_for("w")),
        lambda: store.heartbeat("w", 1_000_000),
        lambda: store.owned("w"),
        lambda: store.get("run-1"),
    ]
    database.server.pause()
    try:
        began = time.monotonic()
        for call in calls:
            with pytest.raises(perdure.StoreUnavailable):
                call()
        taken = time.monotonic() - began
        assert isinstance(store.change_count(), int)
    finally:
        database.server.resume()
    # Each has its deadline; once that is missed, a new connection is tried.
    assert taken < len(calls) * 3
    assert store.commit([step]) == [COMMITTED]
    assert store.heartbeat("w", 60_000_000).alive
    store.close()


@ON_NONE
@pytest.mark.serial
def test_a_frozen_server_costs_time_and_nothing_else(
    database: Database, spawn: Spawner, tmp_path: Path, kind: str
) -> None:
    scene = Scene(spawn, tmp_path, database)
    load = scene.start("both", "w", lease="2s")
    load.expect("ended", 20)
    for seconds in (0.5, 2.5):
        database.server.pause()
        time.sleep(seconds)
        database.server.resume()
        time.sleep(0.5)
    scene.end(load)
    assert scene.check(load) >= 20


@pytest.fixture
def full(servers: Servers, kind: str) -> Iterator[tuple[Database, Callable[[], int]]]:
    """Give a server with few connections, and what makes user code take all that are left."""
    limit = {"max_connections": 12}
    if kind != "mariadb":
        limit |= {"superuser_reserved_connections": 0, "max_wal_senders": 0}
    server = servers.start(kind, settings=limit)
    name = server.new_database()
    with ExitStack() as stack:
        yield Database(server, name), lambda: take_all(server, stack)


def take_all(server: DatabaseServer, stack: ExitStack) -> int:
    taken = 0
    while True:
        try:
            connection = server.connect()
        except FULL:
            return taken
        stack.callback(connection.close)
        taken += 1


@perdure.step
async def nap(n: int) -> int:
    await asyncio.sleep(0.05)
    return n + 1


@perdure.workflow
async def naps(until: int) -> int:
    n = 0
    while n < until:
        n = await nap(n)
    return n


@ON_POSTGRES
async def test_user_code_that_takes_all_connections_does_not_cost_the_lease(
    full: tuple[Database, Callable[[], int]], kind: str
) -> None:
    """The engine has the connections it needs from the beginning: none has to be had later."""
    database, take = full
    async with perdure.Engine(database.url, [naps], lease="1s", poll="100ms") as engine:
        assert engine._worker is not None
        identity = engine._worker.id
        assert take() > 0
        runs = [await engine.start(naps, 40, id=f"run-{number}") for number in range(5)]
        assert [await run.result(timeout=20) for run in runs] == [40] * 5
        assert engine._worker.id == identity
        claims = [event.type for run in runs for event in await run.history()].count("run_claimed")
    assert claims == 5


@ON_POSTGRES
async def test_connections_that_are_lost_while_none_are_left_come_back_as_soon_as_there_are(
    full: tuple[Database, Callable[[], int]], kind: str
) -> None:
    database, _ = full
    async with perdure.Engine(database.url, [naps], lease="1s", poll="100ms") as engine:
        run = await engine.start(naps, 40, id="run-1")
        with ExitStack() as stack:
            if isinstance(database.server, Mariadb):
                stack.enter_context(database.server.connect())
            database.server.cut_connections(database.name)
            take_all(database.server, stack)
            await asyncio.sleep(1.5)
        assert await run.result(timeout=20) == 40
        types = [event.type for event in await run.history()]
    assert types.count("step_completed") == 40
