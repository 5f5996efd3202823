"""An engine that closes while its database is away leaves in time, and says what it does not know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.errors import StoreUnavailable
from tests.servers.fixtures import Database, Servers

Away = Callable[[], object]


@perdure.step
async def add(n: int) -> int:
    await asyncio.sleep(0.005)
    return n + 1


@perdure.workflow
async def count(until: int) -> int:
    n = 0
    while n < until:
        n = await add(n)
    return n


@contextmanager
def locked(url: str) -> Iterator[tuple[Away, Away]]:
    """Give what locks a file against every other writer, and what lets go of it."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    yield lambda: connection.execute("begin immediate"), lambda: connection.execute("rollback")
    connection.close()


SLOW = ["sqlite, locked", "postgres, frozen", "mariadb, frozen"]
"""Each call lasts until its limit of 10 s, and there are several."""


@pytest.fixture(
    params=["postgres, refused", "mariadb, refused", *(pytest.param(one, marks=pytest.mark.nightly) for one in SLOW)]
)
def scene(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[tuple[str, Away, Away]]:
    """Give the URL of a database, what takes it away, and what brings it back."""
    kind, _, how = request.param.partition(", ")
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/runs.db"
        with locked(url) as (away, back):
            yield url, away, back
        return
    database: Database = request.getfixturevalue("new_store")(kind)
    proxy = servers.proxy(database.server)

    def cut() -> None:
        proxy.refuse()
        proxy.cut()

    url = database.server.url(database.name, port=proxy.port)
    yield (url, proxy.freeze, proxy.thaw) if how == "frozen" else (url, cut, lambda: proxy.refuse(refusing=False))


async def test_an_engine_closes_though_its_database_is_away(
    scene: tuple[str, Away, Away], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("perdure.runtime.worker._HAND_BACK_S", 0.5)
    url, away, back = scene
    engine = await perdure.Engine(url, [count], grace=0.5, lease="1s").open()
    run = await engine.start(count, 100, id="begun")
    while len(await run.history()) < 10:
        pass
    away()
    late = asyncio.create_task(engine.start(count, 3, id="late"))
    result = asyncio.create_task(run.result())
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await engine.close()
    print(f"closed after {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 60
    with pytest.raises(StoreUnavailable, match="closed while the database was away") as caught:
        await late
    assert caught.value.unknown
    with pytest.raises(StoreUnavailable):
        await result
    assert "what was not confirmed by then may not be recorded" in caplog.text
    back()
    async with perdure.Engine(url, [count], lease="1s") as another:
        assert await another.get("begun").result(timeout=30) == 100
        assert await (await another.start(count, 3, id="late")).result(timeout=30) == 3
