"""PostgreSQL runs out of transaction ids: it refuses every write until old ones are frozen. Nobody loses anything."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure.cli import main as cli
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from perdure.verify.database import verify
from tests.servers.fixtures import Database, Servers
from tests.servers.postgres import Postgres
from tests.servers.server import run_lowered

LIMIT = (1 << 31) - 1 - 3_000_000
"""So many transactions after the oldest one that is not frozen, the server stops."""
LEFT, STEPS = 100, 200
SEGMENT = 1 << 20
"""Transactions whose states are in one file."""
DONE: list[tuple[str, int]] = []


@perdure.step
async def tick(n: int) -> int:
    DONE.append((perdure.step_info().run_id, n))
    await asyncio.sleep(0.01)
    return n + 1


@perdure.workflow
async def ticking(until: int) -> int:
    n = 0
    while n < until:
        n = await tick(n)
    return n


def age(server: Postgres) -> Path:
    """Stop a server, and start it again when hardly any transactions are left, with a table that cannot be frozen.

    Returns:
        the table's file, which is not where it belongs.
    """
    server.execute("create table stuck as select 1 as n")
    ((name,),) = server.execute("select pg_relation_filepath('stuck')")
    ((oldest,),) = server.execute("select min(datfrozenxid::text::bigint) from pg_database")
    server.stop()
    file = server.data / str(name)
    away = file.rename(file.with_name(f"{file.name}.away"))
    next_id = int(oldest) + LIMIT - LEFT
    states = server.data / "pg_xact" / f"{next_id // SEGMENT:04X}"
    states.write_bytes(bytes(SEGMENT // 4))
    server.own(states)
    run_lowered(server.programs / "pg_resetwal", "-x", str(next_id), "-D", server.data)
    server.start()
    return away


def repair(server: Postgres, away: Path) -> None:
    """Put the table back, and have everything frozen: the server itself sees to the database that takes nobody in."""
    away.rename(away.with_suffix(""))
    for (name,) in server.execute("select datname from pg_database where datallowconn"):
        server.execute("vacuum freeze", database=str(name))


def doctor(url: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Give what each fact is called wrong for."""
    cli.run(["doctor", "--db", url, "--json"])
    return {fact["name"]: fact["problem"] for fact in json.loads(capsys.readouterr().out)["health"]["facts"]}


def exhaust(server: Postgres) -> None:
    """Use up the transactions that are left once the server has frozen all that it can by itself."""
    while server.execute("select datname from pg_database where age(datfrozenxid) > 1000000000") != [("postgres",)]:
        server.execute("select pg_sleep(0.1)")
    with suppress(psycopg.errors.ProgramLimitExceeded), server.connect() as connection:
        while True:
            connection.execute("select txid_current()")


async def told(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the engine has said what it waits for."""
    while 'wraparound data loss in database "' not in caplog.text:
        await asyncio.sleep(0.05)


def refusal(url: str) -> perdure.StoreError:
    """Give what a write ends with that nobody tries again."""
    store = open_store(url, StoreOptions())
    store.open()
    try:
        with pytest.raises(perdure.StoreError) as refused:
            store.commit([Author("never", store.now()).create()])
    finally:
        store.close()
    return refused.value


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["postgres", "postgres18"])
async def test_a_server_without_transaction_ids_costs_time_and_nothing_else(
    servers: Servers, kind: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    DONE.clear()
    server = servers.start(kind, settings={"autovacuum_naptime": 1})
    assert isinstance(server, Postgres)
    database = Database(server, server.new_database())
    async with perdure.Engine(database.url, [ticking], worker=False):
        pass
    away = await asyncio.to_thread(age, server)
    async with perdure.Engine(database.url, [ticking], lease="2s", poll="100ms") as engine:
        runs = [await engine.start(ticking, STEPS, id=f"run-{number}") for number in range(5)]
        await asyncio.to_thread(exhaust, server)
        await asyncio.wait_for(told(caplog), 60)
        error = await asyncio.to_thread(refusal, database.url)
        assert isinstance(error, perdure.StoreUnavailable)
        assert "the server takes no writes" in str(error)
        problems = await asyncio.to_thread(doctor, database.url, capsys)
        assert "find out why vacuum does not freeze database 'postgres'" in problems["transaction ids"]
        assert [await run.status() for run in runs] == ["running"] * 5
        await asyncio.to_thread(repair, server, away)
        assert [await run.result(timeout=60) for run in runs] == [STEPS] * 5
        assert await engine.run(ticking, 1, id="last") == 1
    assert Counter(DONE) == Counter(
        {**{(f"run-{run}", n): 1 for run in range(5) for n in range(STEPS)}, ("last", 0): 1}
    )
    assert [str(finding) for finding in verify(database.url).findings] == []
