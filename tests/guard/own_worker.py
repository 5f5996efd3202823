"""A worker whose transactional steps are in the engine's own database, and which stops at a chosen boundary.

Arguments: the engine's URL, the place of its database, the boundary, and the signal that it sends itself there. It says
"there" before that.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import psycopg
import pymysql

import perdure

PLACE = "OWN_DATABASE_PLACE"
"""The environment variable that holds where the database is, so that a host of another release has it too."""
STOP = ["", ""]
"""Where, and how."""


def boundary(name: str) -> None:
    where, how = STOP
    if where != name:
        return
    STOP[0] = ""
    print("there", flush=True)
    os.kill(os.getpid(), signal.Signals[how])


class Postgres(psycopg.Connection[Any]):
    def commit(self) -> None:
        boundary("after the insert")
        super().commit()
        boundary("after the commit")


class Mysql(pymysql.connections.Connection):
    def commit(self) -> None:
        boundary("after the insert")
        super().commit()
        boundary("after the commit")


def connect() -> Any:
    place: dict[str, Any] = json.loads(os.environ[PLACE])
    server = {name: place[name] for name in ("host", "port", "user")}
    if place["dialect"] == "postgresql":
        return Postgres.connect(dbname=place["database"], **server)
    return Mysql(database=place["database"], ssl_disabled=True, **server)


app: perdure.Database[Any] = perdure.Database(connect)


@perdure.step(mode="transaction", database=app)
def take(what: str) -> int:
    cursor = app.connection.cursor()
    cursor.execute("insert into ledger values (%s)", (what,))
    cursor.execute("select count(*) from ledger")
    (number,) = cursor.fetchone()
    boundary("before the insert")
    return int(number)


@perdure.workflow
async def flow(what: str) -> int:
    return await take.aio(what)


async def main() -> None:
    async with perdure.Engine(sys.argv[1], [flow], lease="1s", poll="50ms"):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    os.environ[PLACE] = sys.argv[2]
    STOP[:] = sys.argv[3:5]
    asyncio.run(main())
