"""Guards in steps: the request id is the step's key, the same for every attempt."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import perdure
from perdure import guard


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(FILE[0], timeout=10)) as connection, connection:
        yield connection


FILE: list[str] = []


@perdure.step(retry=perdure.Retry(attempts=3, initial="1ms"))
def ship(order: str) -> str:
    with shop() as connection, guard.once(connection, body=order) as once:
        if once.first:
            connection.execute("insert into ledger values (?)", (order,))
            once.answer = f"parcel {order} of attempt {perdure.step_info().attempt}"
    if perdure.step_info().attempt < 3:
        raise ConnectionError
    return str(once.answer)


@perdure.step
def twice(order: str) -> str:
    with shop() as connection:
        with guard.once(connection) as once:
            once.answer = 1
        with guard.once(connection):
            return "never"


@perdure.step(retry=perdure.Retry(attempts=3, initial="1ms"))
def rolled_back(order: str) -> str:
    for attempt in range(3):
        try:
            with shop() as connection, guard.once(connection) as once:
                once.answer = "x"
                if attempt < 2:
                    raise ConnectionError
        except ConnectionError:
            continue
    return "done"


@perdure.workflow
async def fulfil(order: str) -> str:
    return await ship.aio(order) + ", " + await ship.aio(order)


@perdure.workflow
async def careless(order: str) -> str:
    return await twice.aio(order)


@perdure.workflow
async def stubborn(order: str) -> str:
    return await rolled_back.aio(order)


@perdure.workflow
async def in_the_body(order: str) -> str:
    with sqlite3.connect(":memory:") as connection, guard.once(connection):
        return "never"


@pytest.fixture
def engine(tmp_db: str, tmp_path: Path) -> perdure.Engine:
    FILE[:] = [str(tmp_path / "shop.db")]
    with closing(sqlite3.connect(FILE[0])) as connection:
        guard.create_table(connection)
        connection.execute("create table ledger (what text)")
    return perdure.Engine(tmp_db, [fulfil, careless, stubborn, in_the_body])


async def test_every_attempt_of_a_step_finds_the_answer_of_the_first(engine: perdure.Engine) -> None:
    async with engine:
        answer = await engine.run(fulfil, "o-1", id="run-1")
    assert answer == "parcel o-1 of attempt 1, parcel o-1 of attempt 1"  # two calls, two keys
    with shop() as connection:
        assert connection.execute("select what from ledger").fetchall() == [("o-1",), ("o-1",)]
        keys = connection.execute("select request_id from perdure_guard order by 1").fetchall()
        assert keys == [("run-1:0",), ("run-1:1",)]


async def test_one_key_guards_one_thing(engine: perdure.Engine) -> None:
    async with engine:
        with pytest.raises(perdure.RunFailed, match="guards two things with one key"):
            await engine.run(careless, "o-1")
        assert await engine.run(stubborn, "o-1") == "done"  # what was rolled back has not used the key


async def test_a_body_has_no_key(engine: perdure.Engine) -> None:
    async with engine:
        with pytest.raises(perdure.RunFailed, match="used in the body of a workflow"):
            await engine.run(in_the_body, "o-1")
