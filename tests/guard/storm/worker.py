"""A worker whose steps are transactions in the application's database, which may be the engine's own.

It dies or freezes when they are about to commit, and when they have. Arguments: the engine's URL, the place of the
application's database, how often it dies, how often it freezes, and at the how manieth of these places it certainly
does so. It says "frozen" before that, and "sold" after each commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from itertools import count
from typing import Any

import psycopg
import pymysql

import perdure

PLACE: dict[str, Any] = {}
PARTS, LEASE_S = 3, 1.0
DIES, FREEZES = [0.0], [0.0]
FATES: dict[int, str] = {}
NUMBERS = count(1)
"""Of the commits and closes, in their order."""


def perhaps_stop() -> None:
    fate = FATES.get(next(NUMBERS))
    if fate == "dies" or random.random() < DIES[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "freezes" or random.random() < FREEZES[0]:
        os.write(1, b"frozen\n")
        os.kill(os.getpid(), signal.SIGSTOP)


class Mortal:
    """Closed after the commit; where the engine's database is another one, that is before the result is recorded."""

    def commit(self) -> None:
        perhaps_stop()
        super().commit()  # type: ignore[misc]
        os.write(1, b"sold\n")

    def close(self) -> None:
        perhaps_stop()
        super().close()  # type: ignore[misc]


class Sqlite(Mortal, sqlite3.Connection):
    pass


class Postgres(Mortal, psycopg.Connection[Any]):
    pass


class Mysql(Mortal, pymysql.connections.Connection):
    pass


def connect() -> Any:
    server = {name: PLACE[name] for name in ("host", "port", "user")}
    match PLACE["dialect"]:
        case "sqlite":
            return sqlite3.connect(PLACE["file"], timeout=20, factory=Sqlite)
        case "postgresql":
            return Postgres.connect(dbname=PLACE["database"], **server)
        case _:
            return Mysql(database=PLACE["database"], ssl_disabled=True, **server)


app: perdure.Database[Any] = perdure.Database(connect)
again = perdure.Retry(attempts=20, initial="10ms", maximum="50ms")


@perdure.step(mode="transaction", database=app, retry=again)
def sell(order: int, part: int) -> int:
    cursor = app.connection.cursor()
    cursor.execute("update stock set units = units - 1")
    cursor.execute("update counter set last = last + 1")
    cursor.execute("select last from counter")
    (number,) = cursor.fetchone()
    cursor.execute(f"insert into taken values ({order}, 'part-{part}', {number})")
    return int(number)


@perdure.workflow
async def fulfil(order: int) -> list[int]:
    return [await sell.aio(order, part) for part in range(PARTS)]


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with perdure.Engine(sys.argv[1], [fulfil], lease=LEASE_S, concurrency=4, max_deaths=1000):
        os.write(1, b"ready\n")
        await stop.wait()


if __name__ == "__main__":
    PLACE |= json.loads(sys.argv[2])
    DIES[0], FREEZES[0] = map(float, sys.argv[3:5])
    FATES |= {int(number): fate for number, fate in json.loads(sys.argv[5]).items()}
    asyncio.run(main())
