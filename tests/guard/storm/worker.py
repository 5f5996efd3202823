"""A worker whose steps are transactions in the application's database.

It dies between their commit and the engine's record. Arguments: the engine's URL, the place of the application's
database, and how often it dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from typing import Any

import psycopg
import pymysql

import perdure

PLACE: dict[str, Any] = {}
DIES = [0.0]


def perhaps_die() -> None:
    if random.random() < DIES[0]:  # closed after the commit, and before the result is recorded
        os.kill(os.getpid(), signal.SIGKILL)


class Sqlite(sqlite3.Connection):
    def close(self) -> None:
        perhaps_die()
        super().close()


class Postgres(psycopg.Connection[Any]):
    def close(self) -> None:
        perhaps_die()
        super().close()


class Mysql(pymysql.connections.Connection):
    def close(self) -> None:
        perhaps_die()
        super().close()


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
    return [await sell.aio(order, part) for part in range(3)]


async def main() -> None:
    async with perdure.Engine(sys.argv[1], [fulfil], lease="1s", concurrency=4, max_deaths=1000):
        await asyncio.Event().wait()


if __name__ == "__main__":
    PLACE |= json.loads(sys.argv[2])
    DIES[0] = float(sys.argv[3])
    asyncio.run(main())
