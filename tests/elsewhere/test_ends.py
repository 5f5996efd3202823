"""Steps that are executed on another queue than their run's: how they end, as a body sees it, and what is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import IdConflict, RunCancelled, RunFailed, RunTimedOut, Status, StepTimedOut
from tests.elsewhere.flows import (
    QUEUES,
    at_last,
    broken,
    calls,
    caught,
    ended,
    engine_on,
    gates,
    grouped,
    keys,
    many,
    one,
    seen,
    sync_one,
    types,
    until,
    with_flaky,
    with_once,
    with_slow,
)


async def test_the_result_comes_back_and_both_logs_tell_of_it(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(one, "M", id="r")
        assert await run.result(timeout=20) == "M!"
        assert (await types(run))[0] == "step_sent"
        assert (await types(run))[-1] == "step_completed"
        there = engine.get("r:0")
        info = await there.info()
        assert (info.queue, info.workflow, info.status) == ("slow", "one", Status.COMPLETED)
        assert info.tags == {"perdure.run": "r", "perdure.step": "media.encode"}
        assert await there.result() == "M!"
    assert (calls, keys) == (["M"], ["r:0"])


async def test_sync_steps_and_a_sync_workflow(url: str) -> None:
    async with engine_on(url) as engine:
        assert await (await engine.start(sync_one, "M")).result(timeout=20) == [("M", 3), ("M", 1)]


@pytest.mark.parametrize("flow", [many, grouped])
async def test_many_at_once(url: str, flow: Any) -> None:
    films = [f"film {n}" for n in range(20)]
    async with engine_on(url, concurrency=3) as engine:
        assert await (await engine.start(flow, films)).result(timeout=20) == [f"{film}!" for film in films]
    assert sorted(calls) == sorted(films)


async def test_one_place_in_the_worker_is_enough_for_caller_and_step(url: str) -> None:
    async with engine_on(url, concurrency=1) as engine:
        runs = [await engine.start(one, f"M{n}") for n in range(5)]
        assert [await run.result(timeout=20) for run in runs] == [f"M{n}!" for n in range(5)]


async def test_a_failure_is_the_very_exception(url: str) -> None:
    broken.add("M")
    async with engine_on(url) as engine:
        run = await engine.start(caught, "M")
        assert await run.result(timeout=20) == ["Torn", "M", 7, "M is torn at 7"]


async def test_it_is_tried_again_where_it_is_executed(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(with_flaky, "M", id="r")
        assert await run.result(timeout=20) == 3
        assert "step_attempt_failed" not in await types(run)
        assert (await types(engine.get("r:0"))).count("step_attempt_failed") == 2


async def test_an_at_most_once_step_has_its_intent_where_it_is_executed(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(with_once, "M", id="r")
        assert await run.result(timeout=20) == "M"
        assert "step_intent" not in await types(run)
        assert "step_intent" in await types(engine.get("r:0"))


async def test_a_step_that_takes_too_long_fails_as_it_would_here(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(with_slow, "M")
        with pytest.raises(RunFailed) as caught_here:
            await run.result(timeout=20)
        assert isinstance(caught_here.value.__cause__, StepTimedOut)


async def test_a_step_that_the_body_gives_up_ends_cancelled(url: str) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url) as engine:
        run = await engine.start(at_last, "M", id="r")
        assert await run.result(timeout=20) == "late"
        assert "step_cancelled" in await types(run)
        sent = await seen(run, "step_sent")
        assert await ended(engine.get(sent.detail["run"])) is Status.CANCELLED


async def test_cancel_of_the_caller(url: str) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url) as engine:
        run = await engine.start(one, "M", id="r")
        await seen(run, "step_sent")
        await run.cancel(reason="no")
        assert await ended(run) is Status.CANCELLED
        assert await ended(engine.get("r:0")) is Status.CANCELLED


async def test_timeout_of_the_caller(url: str) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url) as engine:
        run = await engine.start(one, "M", id="r", timeout="300ms")
        with pytest.raises(RunTimedOut):
            await run.result(timeout=20)
        assert await ended(engine.get("r:0")) is Status.CANCELLED


@pytest.mark.parametrize("queues", [QUEUES, ["default"]], ids=["while it runs", "before it is claimed"])
async def test_an_operator_cancels_the_run_that_executes_the_step(url: str, queues: list[str]) -> None:
    gates["M"] = asyncio.Event()
    async with engine_on(url, queues=queues) as engine:
        run = await engine.start(one, "M", id="r")
        await seen(run, "step_sent")
        there = engine.get("r:0")
        await until(there, Status.RUNNING if len(queues) == 2 else Status.PENDING)
        assert await there.cancel(reason="not this one")
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=20)
        assert isinstance(failed.value.__cause__, RunCancelled)
        assert "not this one" in str(failed.value.__cause__)


async def test_a_run_of_the_users_own_has_the_id(url: str) -> None:
    async with engine_on(url) as engine:
        await engine.start(with_once, "other", id="r:0", queue="nowhere")
        run = await engine.start(one, "M", id="r")
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=20)
        assert isinstance(failed.value.__cause__, IdConflict)
        assert "r:0" in str(failed.value.__cause__)
        assert await engine.get("r:0").status() is Status.PENDING


async def test_the_longest_run_id(url: str) -> None:
    async with engine_on(url) as engine:
        run = await engine.start(one, "M", id="r" * 255)
        assert await run.result(timeout=20) == "M!"
        assert keys == ["r" * 255 + ":0"]
