"""The database goes away at the worst moments: nothing is lost, nothing is done twice, and work goes on afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.runtime.waiters import FULL_LOOK_S


@perdure.step
async def nothing(n: int = 1) -> int:
    return n


@perdure.workflow
async def short() -> int:
    return await nothing()


@perdure.workflow
async def naps() -> int:
    for n in range(40):
        await nothing(n)
    await asyncio.sleep(0.3)
    return 40


@perdure.workflow
async def rests() -> str:
    await asyncio.sleep(1.5)
    return "rested"


@perdure.step
async def endless() -> None:
    await asyncio.sleep(600)


@perdure.workflow
async def held() -> None:
    await endless()


async def until(wanted: Callable[[], Any]) -> None:
    async with asyncio.timeout(40):
        while not wanted():
            await asyncio.sleep(0.002)


class Outage:
    """One method of a store that fails so many times, or until told."""

    def __init__(self, engine: perdure.Engine, name: str, times: float, monkeypatch: pytest.MonkeyPatch) -> None:
        store: Any = engine._store
        self._method = getattr(store, name)
        self.left = times
        self.failed = 0
        monkeypatch.setattr(store, name, self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            self.failed += 1
            raise perdure.StoreUnavailable("gone")
        return self._method(*args, **options)


def worker_of(engine: perdure.Engine) -> Any:
    worker = engine._worker
    assert worker is not None
    return worker


async def asleep(engine: perdure.Engine, run: perdure.Run[Any]) -> None:
    async with asyncio.timeout(40):
        while await run.status() != perdure.Status.WAITING:
            await asyncio.sleep(0.01)


async def test_a_log_that_cannot_be_read_now_is_read_later(tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(tmp_db, [naps], evict_after="10ms", poll="20ms") as engine:
        run = await engine.start(naps)
        await asleep(engine, run)
        outage = Outage(engine, "load", 1, monkeypatch)
        assert await run.result("10s") == 40
        assert outage.failed == 1
        info = await run.info()
        assert info.epoch == 2, "it was kept, not claimed again"


async def test_a_worker_that_stops_meanwhile_leaves_the_run_to_the_next(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.Engine(tmp_db, [naps], evict_after="10ms", poll="20ms", lease="1s") as engine:
        run = await engine.start(naps)
        await asleep(engine, run)
        outage = Outage(engine, "load", float("inf"), monkeypatch)
        await until(lambda: outage.failed)
        worker = worker_of(engine)
    worker._take_later(None)
    async with perdure.Engine(tmp_db, [naps], poll="20ms") as engine:
        assert await engine.get(run.id).result("10s") == 40


async def test_a_worker_that_cannot_say_goodbye_says_so(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with perdure.Engine(tmp_db, [short]) as engine:
        assert await engine.run(short) == 1
        Outage(engine, "heartbeat", 1, monkeypatch)
        worker = worker_of(engine)
    assert "could not say good-bye, the lease will run out: gone" in caplog.text
    await worker.stop(0)  # once more does nothing


async def test_a_worker_that_cannot_register_again_keeps_trying(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with perdure.Engine(tmp_db, [short], lease="1s") as engine:
        worker = worker_of(engine)
        old, outage = worker.id, Outage(engine, "register", 1, monkeypatch)
        worker.host.store.heartbeat(old, 0)
        await until(lambda: worker.id != old and worker.lease.holds())
        assert outage.failed == 1
        assert await engine.run(short) == 1
    assert "goes on under a new id" in caplog.text


async def test_a_claim_that_fails_is_tried_again(tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(tmp_db, worker=False) as client, perdure.Engine(tmp_db, [short], poll="20ms") as engine:
        outage = Outage(engine, "claim", 2, monkeypatch)
        run = await client.start("short")
        assert await run.result("10s") == 1
        assert outage.failed == 2


async def test_a_request_that_cannot_be_read_now_is_read_later(tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(tmp_db, [held]) as engine:
        run = await engine.start(held)
        outage = Outage(engine, "inbox", 2, monkeypatch)
        await run.cancel()
        with pytest.raises(perdure.RunCancelled):
            await run.result("10s")
        assert outage.failed == 2


async def test_who_waits_from_afar_is_told_in_spite_of_an_outage(tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(tmp_db, worker=False) as client:
        run = await client.start("short")
        waiting = asyncio.create_task(run.result("10s"))
        outage = Outage(client, "going_on", 2, monkeypatch)
        await until(lambda: outage.failed == 2)
        async with perdure.Engine(tmp_db, [short], poll="20ms"):
            assert await waiting == 1


async def test_a_client_that_closes_tells_who_still_waits(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, worker=False) as client:
        run = await client.start("short")
        waiting = asyncio.create_task(run.result())
        looked = client.connection.waiters
        await until(lambda: looked._watch is not None)
    with pytest.raises(perdure.PerdureError):
        await asyncio.wait_for(waiting, 40)


async def test_a_request_from_another_process_is_noticed_by_the_heartbeat(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, worker=False) as client, perdure.Engine(tmp_db, [held], lease="1s") as engine:
        run = await engine.start(held)
        assert await client.cancel(run.id, reason="no longer wanted")
        with pytest.raises(perdure.RunCancelled):
            await run.result("10s")


async def test_a_run_that_was_given_to_another_is_dropped(tmp_db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with perdure.Engine(tmp_db, [held], grace=0) as engine:
        run = await engine.start(held)
        worker = worker_of(engine)
        await until(lambda: run.id in worker.host.runs)
        worker.check_owned({})
        assert run.id in worker.host.runs, "an answer from before its claim says nothing"
        worker.check_owned({})
        assert run.id not in worker.host.runs
    assert "the database says it moved on" in caplog.text


async def test_starts_wait_for_room_and_none_is_lost(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, worker=False) as client:
        client.connection.writer._high_water = 0
        runs = await asyncio.gather(*(client.start("short", id=str(n)) for n in range(50)))
        assert len(runs) == 50
        assert len([info async for info in client.list()]) == 50


async def test_a_look_that_hung_in_an_outage_does_not_delay_the_next_one(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks take no more than a tenth of the time; one that hung says nothing of what the next one will take."""
    async with perdure.Engine(tmp_db, [rests], poll="20ms") as worker, perdure.Engine(tmp_db, worker=False) as client:
        store: Any = client._store
        plain = store.going_on
        looks: list[float] = []

        def hanging(run_ids: list[str]) -> list[str]:
            if len(looks) == 1:
                threading.Event().wait(0.3)
            looks.append(time.monotonic())
            going_on: list[str] = plain(run_ids)
            return going_on

        monkeypatch.setattr(store, "going_on", hanging)
        await worker.start(rests, id="r")
        assert await client.get("r").result("15s") == "rested"
    assert looks[2] - looks[1] < 2 * FULL_LOOK_S
