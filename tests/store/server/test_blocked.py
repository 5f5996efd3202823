"""A transaction of the application's that holds what one write needs: its neighbours are written all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import perdure
from perdure.model.write import COMMITTED, Blocked, Existing, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from perdure.verify.database import verify
from tests.guard.clients import KINDS as CLIENTS
from tests.guard.clients import Client, Place
from tests.servers.fixtures import Database
from tests.servers.postgres import USER

pytestmark = pytest.mark.serial
PATIENCE_S = 6.0
NEIGHBOURS = 100


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    """Give a connection of an application to the engine's database."""
    is_mysql = database.url.startswith("mysql")
    place = Place("mysql" if is_mysql else "postgresql", port=database.server.port, user=USER, database=database.name)
    with closing(CLIENTS["pymysql" if is_mysql else "psycopg"][0](place)) as client:
        yield client


@perdure.workflow
async def idle() -> None: ...


def events(database: Database) -> str:
    return "event" if database.url.startswith("mysql") else "perdure.event"


def hold_places(client: Client, database: Database, seq: int, *run_ids: str) -> None:
    """Begin a transaction that has a place in the logs of these runs."""
    log = events(database)
    if client.place.dialect == "mysql":  # else what is selected would be locked, with the gaps around it
        client.execute("set session transaction isolation level read committed")
    client.begin()
    columns = "run_id, seq, type, attempt, at, epoch, commit_id, chain"
    for run_id in run_ids:
        select = f"select run_id, {seq}, type, attempt, at, epoch, 7, chain from {log}"
        client.execute(f"insert into {log} ({columns}) {select} where run_id = ?", run_id)


def neighbours(store: Store, first: int = 0) -> list[Write]:
    return [Author(f"neighbour-{number}", store.now()).create() for number in range(first, first + NEIGHBOURS)]


def timed(store: Store, batch: list[Write]) -> tuple[list[Any], float]:
    began = time.perf_counter()
    outcomes = store.commit(batch)
    assert outcomes is not None
    return outcomes, time.perf_counter() - began


def test_a_start_whose_id_is_held(store: Store, client: Client, database: Database) -> None:
    """Its neighbours are told in time, and the next time nobody is waited for at all."""
    blocked = Author("order-1", store.now()).create(fresh=False)
    with perdure.SyncEngine(database.url, [idle], worker=False) as engine:
        client.begin()
        engine.start_in(client.raw, idle, id="order-1")
        batch = [*neighbours(store), blocked, *neighbours(store, NEIGHBOURS)]
        outcomes, took_s = timed(store, batch)
        assert outcomes == [COMMITTED] * NEIGHBOURS + [Blocked("order-1")] + [COMMITTED] * NEIGHBOURS
        assert took_s < PATIENCE_S
        tries = [timed(store, [blocked]) for _ in range(5)]
        assert all(again == [Blocked("order-1")] for again, _ in tries)
        again_s = min(took_s for _, took_s in tries)
        assert again_s < 0.5
        print(f"{2 * NEIGHBOURS} neighbours after {took_s:.2f} s; tried again in {again_s * 1000:.0f} ms")
        client.commit()
        (found,) = store.commit([blocked]) or []
        assert isinstance(found, Existing)
    assert verify(database.url).findings == []


def test_an_append_whose_place_is_held(store: Store, client: Client, database: Database) -> None:
    author = Author("run-1", store.now())
    store.commit([author.create(), author.send()])
    stale = author.stale()
    hold_places(client, database, 2, "run-1")
    outcomes, took_s = timed(store, [author.claimed("w"), *neighbours(store), stale.send()])
    assert outcomes[0] == Blocked("run-1")
    assert outcomes[1:-1] == [COMMITTED] * NEIGHBOURS
    assert outcomes[-1] == Blocked("run-1")  # of the same run, behind it
    assert took_s < PATIENCE_S
    client.rollback()
    outcomes, _ = timed(store, [stale.claimed("w"), stale.send()])
    assert outcomes == [COMMITTED] * 2


def test_many_that_are_blocked_do_not_add_up(store: Store, client: Client, database: Database) -> None:
    authors = [Author(f"run-{number}", store.now()) for number in range(20)]
    store.commit([author.create() for author in authors])
    hold_places(client, database, 2, *(author.run_id for author in authors))
    outcomes, took_s = timed(store, [*(author.claimed("w") for author in authors), *neighbours(store)])
    assert outcomes == [Blocked(author.run_id) for author in authors] + [COMMITTED] * NEIGHBOURS
    assert took_s < PATIENCE_S
    client.rollback()


async def test_case_one_blocked_start_and_a_hundred_neighbours(client: Client, database: Database) -> None:
    """The same through an engine: all that is acknowledged is, in time, and the blocked one when its turn has come."""
    with perdure.SyncEngine(database.url, [idle], worker=False) as caller:
        async with perdure.Engine(database.url, [idle], worker=False) as engine:
            client.begin()
            caller.start_in(client.raw, idle, id="order-1")
            began = time.perf_counter()
            blocked = asyncio.create_task(engine.start(idle, id="order-1"))
            await asyncio.sleep(0)
            waves = [0.0]
            for wave in range(3):  # behind it, and beside its further tries
                now = time.perf_counter()
                await asyncio.gather(*(engine.start(idle, id=f"n-{wave}-{number}") for number in range(NEIGHBOURS)))
                waves.append(time.perf_counter() - now)
            assert not blocked.done()
            assert max(waves) < PATIENCE_S
            client.commit()
            run = await asyncio.wait_for(blocked, PATIENCE_S)
            assert run.id == "order-1"
            print(f"waves of {NEIGHBOURS}: {', '.join(f'{wave:.2f} s' for wave in waves[1:])}; all in "
                  f"{time.perf_counter() - began:.2f} s")  # fmt: skip
    assert verify(database.url).findings == []


def test_who_only_meets_a_neighbour_in_passing_is_not_blocked(store: Store, database: Database) -> None:
    """Two processes that start one run at once: one has it, and the other is told of it."""
    other = open_store(database.url, StoreOptions())
    other.open()
    found: list[Any] = []
    together = threading.Barrier(2)

    def commit(who: Store) -> None:
        for number in range(30):
            together.wait(10)
            found.extend(who.commit([Author(f"same-{number}", store.now()).create(fresh=False)]) or [])

    threads = [threading.Thread(target=commit, args=(who,)) for who in (store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    other.close()
    assert len(found) == 60
    assert found.count(COMMITTED) == 30
    assert sum(isinstance(one, Existing) for one in found) == 30
