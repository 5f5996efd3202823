"""Real complaints about database servers: deadlocks, isolation, outages, restarts, few connections, old snapshots."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

import perdure
from perdure import Queue
from perdure.model.claim import ClaimRequest
from perdure.store.base import StoreOptions, open_store
from perdure.store.mysql.link import MysqlLink
from perdure.store.postgres.link import PostgresLink
from perdure.testing.author import Author, claims_for, worker
from tests.cases import flows
from tests.cases.backends import on_postgres, on_servers
from tests.cases.conftest import ROOT, World
from tests.cases.ledger import PLACE, until
from tests.process import Spawner
from tests.servers.fixtures import Database, Servers
from tests.servers.postgres import Postgres

KINDS = pytest.mark.parametrize("kind", ["postgres", "mariadb"])
NIGHTLY = {kind: pytest.param(kind, marks=pytest.mark.nightly) for kind in ("postgres", "mariadb")}
ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres", NIGHTLY["mariadb"]])
ON_MARIADB = pytest.mark.parametrize("kind", [NIGHTLY["postgres"], "mariadb"])
"""Where a case belongs to the default suite; in the long campaigns it is played on both."""
DEADLOCKS: list[type[Exception] | tuple[int, str]] = [
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
]
LOCKS = [(1213, "Deadlock found when trying to get lock"), (1205, "Lock wait timeout exceeded"), (1020, "has changed")]


@pytest.fixture
def own(
    servers: Servers, kind: str, tmp_path: Path, spawn: Spawner, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., World]:
    """Give a maker of a world on a server of the test's own, which may be killed."""

    def make(**settings: str | int) -> World:
        server = servers.start(kind, settings=settings)
        world = World(tmp_path, spawn, Database(server, server.new_database()))
        monkeypatch.setenv(PLACE, str(world.ledger.path))
        return world

    return make


def server_of(world: World) -> Any:
    assert world.database is not None
    return world.database.server


class Deadlocks:
    """Every so many calls of the connections of this process fail as the loser of a deadlock does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
        self.every = every
        self.calls = 0
        self.failed: Counter[str] = Counter()
        for link, make in ((PostgresLink, self._postgres), (MysqlLink, self._mysql)):
            monkeypatch.setattr(link, "run", self._wrapped(link.run, make))

    def _wrapped(self, run: Any, make: Callable[[int], Exception]) -> Any:
        def failing(link: Any, calls: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls % self.every == 0:
                number = self.calls // self.every
                self.failed[str(number % 3)] += 1
                raise make(number % 3)
            return run(link, calls, **options)

        return failing

    def _postgres(self, number: int) -> Exception:
        kind = DEADLOCKS[number]
        assert isinstance(kind, type)
        return kind("injected")

    def _mysql(self, number: int) -> Exception:
        return pymysql.err.OperationalError(*LOCKS[number])


@on_servers
async def test_case_dbb_04(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock is an everyday event, and kills the scheduler or fails the job.

    Deadlocks, lock timeouts and serialization failures at every so many statements of the engine, wherever that is,
    while 50 runs go on; the gap between them changes, so that each statement is hit. (The real ones of 8 claimers and 8
    starters are in the hazards of MySQL.) Source: rails/solid_queue#162, rails/solid_queue#609, apache/airflow#13668,
    Netflix/conductor#576.
    """
    async with world.engine(lease="10s") as engine:
        deadlocks = Deadlocks(monkeypatch, 13)
        for every in (13, 11, 9, 17, 14):
            deadlocks.every = every
            runs = [await engine.start(flows.three_steps, id=f"r{every}-{n}") for n in range(10)]
            assert [await run.result(timeout=20) for run in runs] == [["one", "two", "three"]] * 10
        deadlocks.every = 10**9
    assert sum(deadlocks.failed.values()) >= 10
    assert len(deadlocks.failed) == 3
    for step in ("first", "second", "third"):
        assert set(world.ledger.counts(step).values()) == {1}


@ON_MARIADB
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "REPEATABLE-READ"])
async def test_case_dbb_05(own: Callable[..., World], kind: str, isolation: str) -> None:
    """Snapshot isolation hides changes: a poller inside a transaction never sees the result, or claiming aborts.

    The server's default is REPEATABLE READ or SERIALIZABLE; the caller waits for the result inside a transaction of its
    own; four workers. Source: openedx/enterprise-catalog PR#245, Couchers-org/couchers PR#9439.
    """
    name = "default_transaction_isolation" if kind == "postgres" else "transaction_isolation"
    world = own(**{name: isolation.replace("-", " ").lower() if kind == "postgres" else isolation})
    engines = [world.engine(name=f"W{n}", lease="10s", concurrency=20) for n in range(4)]
    await asyncio.gather(*(engine.open() for engine in engines))
    async with world.client() as client:
        with ExitStack() as stack:
            connection = stack.enter_context(server_of(world).connect(world.database and world.database.name))
            with connection.cursor() as cursor:
                cursor.execute("begin")
                cursor.execute("select 1")
                began = time.monotonic()
                run = await client.start(flows.two_steps, id="waited-for")
                assert await run.result(timeout=30) == ["one", "two"]
                assert time.monotonic() - began < 6
        runs = [await client.start(flows.trivial, n, id=f"r{n}") for n in range(100)]
        assert [await each.result(timeout=30) for each in runs] == list(range(100))
    await asyncio.gather(*(engine.close() for engine in engines))
    assert set(world.ledger.counts("last").values()) == {1}


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


@on_postgres
async def test_case_dbb_09(world: World) -> None:
    """The channel of notifications is dropped and never opened again: the worker works on by slow polling only.

    The latency of single starts before and after every connection was cut. Polling alone would take 5 s at most.
    Source: taskforcesh/bullmq#4729, procrastinate-org/procrastinate PR#1425.
    """
    assert world.database is not None
    async with world.client() as client:
        world.worker("W1", poll="5s", lease="10s")
        before = await latencies(world, client, "before", 10)
        world.database.server.cut_connections(world.database.name)
        await asyncio.sleep(1.5)
        after = await latencies(world, client, "after", 10)
    assert statistics.median(after) < 2 * statistics.median(before) + 0.3
    assert statistics.median(after) < 1


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


@on_servers
async def test_case_dbb_13(world: World) -> None:
    """A pool is smaller than the number of runs: each needs a second connection, or heartbeats wait behind work.

    200 runs at once on the few connections that the engine has: their number does not depend on that of the runs.
    Source: conductor-oss/conductor#104, langchain-ai/langgraph#7259.
    """
    assert world.database is not None
    async with world.engine(concurrency=200, lease="2s") as engine:
        assert engine._worker is not None
        identity = engine._worker.id
        runs = await asyncio.gather(*(engine.start(flows.long_async, 1.0, id=f"r{n}") for n in range(200)))
        await world.ledger.until("wait_async", 200)
        assert len(world.database.server.backends(world.database.name)) <= 4  # three, and the one that asks
        assert [await run.result(timeout=20) for run in runs] == ["a"] * 200
        assert engine._worker.id == identity
    assert set(world.ledger.counts("wait_async").values()) == {1}


class Passage:
    """A store through whose queue runs go, made and completed in hundreds and claimed in tens."""

    def __init__(self, url: str) -> None:
        self.store = open_store(url, StoreOptions(durability="process"))
        self.store.open()
        self.store.register(worker("w", self.store.now(), 3_600_000_000))
        self.spans: list[float] = []
        """How long each claim took, in seconds."""

    def hundred(self, first: int) -> None:
        store = self.store
        authors = {f"r{n}": Author(f"r{n}", store.now()) for n in range(first, first + 100)}
        store.commit([author.create() for author in authors.values()])
        for _ in range(10):
            began = time.monotonic()
            claimed = store.claim(ClaimRequest("w", ("default",), ("0 order",), 10), claims_for("w"))
            self.spans.append(time.monotonic() - began)
            assert claimed is not None
            assert len(claimed.taken) == 10
            for one in claimed.taken:
                authors[one.row.id].follow(one)
            store.commit([authors[one.row.id].completed() for one in claimed.taken])


@on_servers
@pytest.mark.parametrize("runs", [3_000, pytest.param(200_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])])
def test_case_dbb_14(
    world: World, new_store: Callable[[str], Database], runs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old snapshot keeps dead rows, and claiming slows down: it has to wade through what is gone.

    A transaction of another client pins the horizon while many runs go through the queue; the last claims take no more
    than three times as long as those made in turn with them in a database that few runs went through. (On PostgreSQL a
    snapshot pins its own database only; on MariaDB all, but what is gone there is little.)
    Source: NikolayS/PgQue PR#80, riverqueue/river#59, que-rb/que#297.
    """
    assert world.database is not None
    on_postgres = isinstance(world.database.server, Postgres)
    with ExitStack() as stack:
        old = stack.enter_context(server_of(world).connect(world.database.name)).cursor()
        passages = [Passage(url) for url in (world.url, new_store("postgres" if on_postgres else "mariadb").url)]
        for passage in passages:
            stack.callback(passage.store.close)
        used, new = passages
        if on_postgres:
            old.execute("begin isolation level repeatable read")
            old.execute("select count(*) from perdure.run")
        else:
            old.execute("start transaction with consistent snapshot")
            old.execute("select count(*) from run")
        for first in range(0, runs, 100):
            used.hundred(first)
            if first >= runs - 500:
                new.hundred(first)
    late, beside = statistics.median(used.spans[-50:]), statistics.median(new.spans)
    with capsys.disabled():
        print(f"\nclaims after {runs} runs beside an old snapshot: {late * 1e3:.2f} ms, others: {beside * 1e3:.2f} ms")
    assert late < 3 * beside + 0.002


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


@on_servers
async def test_case_ide_06_cut(world: World, servers: Servers) -> None:
    """The connection is cut in the answer to the start; the client repeats it while the run goes on, and after it."""
    assert world.database is not None
    server = world.database.server
    proxy = servers.proxy(server)
    async with world.engine(lease="10s"):
        url = server.url(world.database.name, port=proxy.port)
        async with perdure.Engine(url, [flows], worker=False) as client:
            proxy.on_commit("after", touching=r"\brun\b")
            run = await client.start(flows.nap, 0.3, id="k")
            assert proxy.cuts == 1
            proxy.on_commit("mid-reply", touching=r"\brun\b")
            again = await client.start(flows.nap, 0.3, id="k")
            assert (run.id, again.id) == ("k", "k")
            assert await again.result(timeout=30) == "rested"
            assert await (await client.start(flows.nap, 0.3, id="k")).result(timeout=30) == "rested"
    assert world.ledger.count("first", "k") == 1
