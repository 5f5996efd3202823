"""Whoever waits for a step elsewhere may leave, be retried, forked or stopped: each waits for what it has asked for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import Status, StoreUnavailable
from perdure.runtime import closing, errands
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SqliteStore
from tests.elsewhere.flows import (
    broken,
    calls,
    ended,
    engine_on,
    gates,
    grouped,
    keys,
    lifted,
    mixed,
    one,
    seen,
    sync_held,
    told,
    types,
    until,
)


async def test_what_an_operators_retry_asks_for_is_not_what_was_asked_for_before(url: str) -> None:
    broken.add("M")
    async with engine_on(url) as engine:
        run = await engine.start(told, "M", id="r")
        assert await ended(run) is Status.FAILED
        assert calls == ["M", "failure"]
        broken.clear()
        await engine.retry("r")
        assert await run.result(timeout=20) == "success!"
    assert calls == ["M", "failure", "M", "success"]


async def test_what_was_given_up_because_of_a_failure_is_executed_after_a_retry(url: str) -> None:
    broken.add("bad")
    gates["good"] = asyncio.Event()
    async with engine_on(url) as engine:
        run = await engine.start(grouped, ["good", "bad"], id="r")
        assert await ended(run) is Status.FAILED
        assert "step_cancelled" in await types(run)
        broken.clear()
        gates.clear()
        await engine.retry("r")
        assert await run.result(timeout=20) == ["good!", "bad!"]
    assert len(set(keys)) == 2


async def test_eviction_and_the_message_that_wakes(url: str) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url, evict_after="20ms") as engine:
        run = await engine.start(one, "M", id="r")
        await until(run, Status.WAITING)
        gates["M"].set()
        assert await run.result(timeout=5) == "M!"
        assert "step_returned" in await types(run)


async def test_a_fork_has_its_steps_executed_for_itself(url: str) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url) as engine:
        run = await engine.start(one, "M", id="r")
        await until(engine.get("r:0"), Status.RUNNING)
        fork, given_up = await engine.fork("r", id="f"), await engine.fork("r", id="g")
        await seen(given_up, "run_claimed", 2)
        await until(engine.get("g:0"), Status.RUNNING)
        await given_up.cancel()
        assert await ended(given_up) is Status.CANCELLED
        gates["M"].set()
        assert [await one.result(timeout=5) for one in (run, fork)] == ["M!", "M!"]
        assert await ended(engine.get("g:0")) is Status.CANCELLED
    assert sorted(keys) == ["f:0", "g:0", "r:0"]


async def test_answers_that_come_with_the_failure_that_gives_their_steps_up(url: str) -> None:
    broken.add("bad")
    gate = gates["good"] = gates["better"] = asyncio.Event()
    async with engine_on(url, concurrency=200) as engine:
        runs = [await engine.start(grouped, ["good", "bad", "better"]) for _ in range(20)]
        gate.set()
        assert [await ended(run) for run in runs] == [Status.FAILED] * 20


@pytest.mark.parametrize("rest", ["20ms", "2s"])
async def test_a_slow_look_at_how_it_ended_loses_no_wake_up(
    url: str, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in (MemoryStore, SqliteStore):
        monkeypatch.setattr(store, "get", slowly(store.get))
    async with engine_on(url, evict_after=rest) as engine:
        run = await engine.start(one, "M", id="r")
        assert await run.result(timeout=10) == "M!"


def slowly(look: Any) -> Any:
    def get(store: Any, run_id: str) -> Any:
        if run_id == "r:0":
            threading.Event().wait(0.2)
        return look(store, run_id)

    return get


async def test_a_worker_that_stops_as_the_step_ends_loses_no_wake_up(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(tmp_db) as engine:
        run = await engine.start(one, "M", id="r")
        await until(engine.get("r:0"), Status.RUNNING)
        monkeypatch.setattr(SqliteStore, "get", slowly(SqliteStore.get))
        gates["M"].set()
        await seen(run, "step_returned")
    async with engine_on(tmp_db) as engine:
        assert await engine.get("r").result(timeout=10) == "M!"


async def test_a_database_that_is_away_as_the_step_ends_loses_no_wake_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = threading.Event()
    for store in (MemoryStore, SqliteStore):
        monkeypatch.setattr(store, "get", unless(away, store.get))
    gates["M"] = asyncio.Event()
    async with engine_on(url, evict_after="20ms") as engine:
        run = await engine.start(one, "M", id="r")
        await until(run, Status.WAITING)
        away.set()
        gates["M"].set()
        await asyncio.sleep(0.5)
        away.clear()
        assert await run.result(timeout=10) == "M!"


def unless(away: threading.Event, look: Any) -> Any:
    def get(store: Any, run_id: str) -> Any:
        if away.is_set():
            text = "it is away"
            raise StoreUnavailable(text)
        return look(store, run_id)

    return get


async def test_whoever_hears_nothing_looks_by_himself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "LOOK_US", 300_000)
    monkeypatch.setattr(closing, "report", lambda *_: None)
    gates["M"] = asyncio.Event()
    async with engine_on(url, evict_after="20ms") as engine:
        run = await engine.start(one, "M", id="r")
        await until(run, Status.WAITING)
        gates["M"].set()
        assert await run.result(timeout=10) == "M!"
        assert "step_returned" not in await types(run)


async def test_whoever_waits_gives_his_place_in_the_queue_up(url: str) -> None:
    gates["M"] = gates["N"] = asyncio.Event()
    async with engine_on(url, evict_after="20ms") as engine:
        await engine.queue("default").set(concurrency=1)
        runs = [await engine.start(one, film, id=film) for film in ("M", "N")]
        for film in ("M", "N"):
            await until(engine.get(f"{film}:0"), Status.RUNNING)
        gates["M"].set()
        assert [await run.result(timeout=10) for run in runs] == ["M!", "N!"]


async def test_a_body_on_a_thread_leaves_and_comes_back(url: str) -> None:
    async with engine_on(url, evict_after="20ms") as engine:
        run = await engine.start(sync_held, "M", id="r")
        await until(run, Status.WAITING)
        lifted.set()
        assert await run.result(timeout=10) == "MM"
    assert calls == ["M", "M"]


async def test_a_step_that_is_not_recorded_stays_with_its_run(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(mixed, "M", id="r")
        assert await run.result(timeout=10) == ["M", "M", "M", "M!", "M"]
        names = [event.name for event in await run.history() if event.type == "step_sent"]
        assert names == ["media.early", "media.encode", "media.early"]
