"""Real complaints about database servers: deadlocks, isolation, outages, restarts, few connections, old snapshots."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
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
from tests.cases.backends import KINDS, ON_MARIADB, on_servers
from tests.cases.conftest import World, server_of
from tests.servers.fixtures import Database, Servers

DEADLOCKS: list[type[Exception] | tuple[int, str]] = [
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
]
LOCKS = [(1213, "Deadlock found when trying to get lock"), (1205, "Lock wait timeout exceeded"), (1020, "has changed")]


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
    while 50 runs go on; the gap between them changes, so that each statement is hit. (Real ones: below; of 8 claimers
    and 8 starters in the hazards of MySQL.) Source: rails/solid_queue#162, rails/solid_queue#609, apache/airflow#13668,
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


FULL = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.nightly
@pytest.mark.timeout(600)
@on_servers
async def test_case_dbb_04_stress(world: World) -> None:
    """The same without anything injected: eight workers at runs with keys, limits and delays, started by many at once.

    However often the server makes one of them wait or begin again, each run is there once and each step ran once.
    """
    queue = Queue("q", concurrency=30, concurrency_per_key=3)
    workers = [world.worker(f"W{n}", lease="10s", queues=["q"], wait=False) for n in range(8)]
    clients = [world.client(queues=[queue]) for _ in range(3)]
    await asyncio.gather(*(client.open() for client in clients))
    for child in workers:
        await asyncio.to_thread(child.expect, "READY")

    async def start(client: perdure.Engine, n: int) -> perdure.Run[Any]:
        options: dict[str, Any] = {"partition_key": f"p{n % 20}", "delay": n % 5 / 5, "priority": n % 3}
        return await client.start(flows.three_steps, queue="q", deduplication_key=f"k{n}", **options)

    runs: dict[str, perdure.Run[Any]] = {}
    for first in range(0, 400, 50):
        pieces = range(first, first + 50)
        made = await asyncio.gather(*(start(client, n) for client in clients for n in pieces))
        runs |= {run.id: run for run in made}
    assert [await run.result(timeout=120) for run in runs.values()] == [["one", "two", "three"]] * len(runs)
    assert 400 <= len(runs) <= 1200  # a key is free again when its run has ended
    assert (await clients[0].queue("q").info()).slots == 0
    await asyncio.gather(*(client.close() for client in clients))
    for step in ("first", "second", "third"):
        assert world.ledger.counts(step) == dict.fromkeys(runs, 1)
    for child in workers:
        assert child.process.poll() is None
        child.send(signal.SIGTERM)
        assert child.finish().code == 0
        assert "Traceback" not in child.err


def isolated(own: Callable[..., World], kind: str, isolation: str) -> World:
    """Give a world whose server isolates transactions so by default."""
    if kind == "postgres":
        return own(default_transaction_isolation=isolation.replace("-", " ").lower())
    return own(transaction_isolation=isolation)


@ON_MARIADB
@pytest.mark.parametrize("count,within", [(100, 9.0), pytest.param(500, 2.0, marks=FULL)])
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "REPEATABLE-READ"])
async def test_case_dbb_05(own: Callable[..., World], kind: str, isolation: str, count: int, within: float) -> None:
    """Snapshot isolation hides changes: a poller inside a transaction never sees the result, or claiming aborts.

    The server's default is REPEATABLE READ or SERIALIZABLE; the caller waits for the result inside a transaction of its
    own; four workers. Source: openedx/enterprise-catalog PR#245, Couchers-org/couchers PR#9439.
    """
    world = isolated(own, kind, isolation)
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
                assert time.monotonic() - began < within
        runs = [await client.start(flows.trivial, n, id=f"r{n}") for n in range(count)]
        assert [await each.result(timeout=30) for each in runs] == list(range(count))
    await asyncio.gather(*(engine.close() for engine in engines))
    assert set(world.ledger.counts("last").values()) == {1}


async def hundred(world: World) -> float:
    """Give the seconds that a hundred runs take with the workers that are open."""
    async with world.client() as client:
        began = time.monotonic()
        runs = await client.start_many(perdure.Start(flows.two_steps) for _ in range(100))
        for run in runs:
            await run.result(timeout=60)
        return time.monotonic() - began


@pytest.mark.nightly
@pytest.mark.timeout(600)
@KINDS
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "REPEATABLE-READ"])
async def test_case_dbb_05_throughput(own: Callable[..., World], kind: str, isolation: str) -> None:
    """With whatever isolation as the server's default, runs go through at least half as fast as with READ COMMITTED.

    Five times a hundred runs on each of the two servers, in turn.
    """
    worlds = [isolated(own, kind, isolation), isolated(own, kind, "READ-COMMITTED")]
    engines = [[world.engine(name=f"W{n}", lease="10s") for n in range(4)] for world in worlds]
    await asyncio.gather(*(engine.open() for those in engines for engine in those))
    spans = [[await hundred(world) for world in worlds] for _ in range(5)]
    await asyncio.gather(*(engine.close() for those in engines for engine in those))
    given, committed = (statistics.median(those) for those in zip(*spans, strict=True))
    assert given < 2 * committed


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
    used, new = (Passage(url) for url in (world.url, new_store(world.database.kind).url))
    with world.database.old_snapshot(), closing(used.store), closing(new.store):
        for first in range(0, runs, 100):
            used.hundred(first)
            if first >= runs - 500:
                new.hundred(first)
    late, beside = statistics.median(used.spans[-50:]), statistics.median(new.spans)
    with capsys.disabled():
        print(f"\nclaims after {runs} runs beside an old snapshot: {late * 1e3:.2f} ms, others: {beside * 1e3:.2f} ms")
    assert late < 3 * beside + 0.002


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
