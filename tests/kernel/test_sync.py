"""Sync workflow bodies run on threads, and leave the same log under the same rules."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import perdure
from perdure.model.event import Event
from perdure.model.status import EventType
from tests.kernel import sync_programs
from tests.kernel.outside import Outside, note
from tests.kernel.replay import check_everywhere, check_whole_replay, record
from tests.kernel.steps import Declined, add, fail, plus
from tests.kernel.world import World, result

SEEDS = range(4)


def bare(log: list[Event]) -> list[tuple[Any, ...]]:
    return [(e.seq, e.type, e.op, e.kind, e.name, e.attempt, e.digest, e.input, e.payload) for e in log]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(sync_programs.TWINS))
def test_a_sync_body_leaves_the_log_of_its_async_twin(name: str, seed: int) -> None:
    ours, twin = record(sync_programs.EVERY[name], seed), record(sync_programs.TWINS[name], seed)
    assert bare(ours.log) == bare(twin.log)
    assert ours.outside.trace[:1] == twin.outside.trace[:1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(sync_programs.EVERY))
def test_a_sync_body_replays_from_every_crash_point(name: str, seed: int) -> None:
    check_everywhere(sync_programs.EVERY[name], seed, settled=name != "sync_steps")


@perdure.workflow
def cleans_up() -> str:
    try:
        perdure.blocking.sleep(3600)
    except BaseException as error:
        note(type(error).__name__)
        raise
    finally:
        note("finally")
        plus(1, 1)
        note("after the step")
    return "woke"


def body_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("perdure-body")]


def until_no_body_thread() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("perdure-body"):
            thread.join(5)
    assert not body_threads()


def test_eviction_unwinds_a_sync_body_without_a_trace_and_its_thread_ends() -> None:
    world = World(cleans_up)
    world.evict_when_idle = True
    assert world.execute().type == EventType.RUN_WAITING
    until_no_body_thread()
    assert world.outside.trace == [("Evicted",), ("finally",)]
    assert not world.outside.calls
    later = World(cleans_up, outside=Outside(1))
    later.execute(world.log)
    assert result(later.log[-1]) == ("completed", "woke")
    assert later.outside.trace == [("finally",), ("after the step",)]
    check_whole_replay(later)


@perdure.workflow
def cancelled_in_a_step() -> list[str]:
    seen: list[str] = []
    try:
        add.blocking(1, 1)
        perdure.blocking.sleep(1000)
    except BaseException as error:
        seen.append(type(error).__name__)
        seen.append(str(plus(20, 2)))
    perdure.blocking.sleep(1)
    return seen


def cancel_after(seconds: float, times: int = 1) -> Any:
    def during(world: World) -> None:
        for n in range(times):
            world.host.loop.call_later(seconds + n, world.cancel)

    return during


def test_a_cancel_arrives_in_a_sync_body_at_its_next_wait_and_may_be_swallowed() -> None:
    world = World(cancelled_in_a_step)
    world.execute(during=cancel_after(50))
    assert result(world.log[-1]) == ("completed", ["CancelledError", "22"])
    check_whole_replay(world)


def test_a_sync_body_that_lets_the_cancel_through_ends_cancelled_after_its_clean_up() -> None:
    world = World(cleans_up)
    world.execute(during=cancel_after(5))
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert world.outside.trace == [("CancelledError",), ("finally",), ("after the step",)]
    check_whole_replay(world)


@perdure.workflow
def fails() -> None:
    try:
        fail.blocking("first")
    except Declined:
        plus(1, 2)
        raise


def test_what_a_sync_body_raises_is_the_runs_failure() -> None:
    world = check_everywhere_failed()
    assert result(world.log[-1])[:2] == ("failed", "tests.kernel.steps.Declined")


def check_everywhere_failed() -> World:
    world = record(fails)
    check_whole_replay(world)
    return world


@perdure.workflow
def uses_another_thread() -> str:
    told: list[str] = []

    def elsewhere() -> None:
        token = perdure.kernel.scope.CURRENT.set(run)
        try:
            plus(1, 1)
        except RuntimeError as error:
            told.append(str(error))
        finally:
            perdure.kernel.scope.CURRENT.reset(token)

    run = perdure.kernel.scope.CURRENT.get()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    return told[0]


def test_an_operation_on_a_thread_that_is_not_the_bodys_is_refused() -> None:
    assert "on another thread" in result(record(uses_another_thread).log[-1])[1]


@perdure.workflow
def very_long(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = plus(total, 1)
    return total


def test_a_long_sync_history_replays() -> None:
    world = record(very_long, args=(2000,))
    again = check_whole_replay(world)
    assert result(again.log[-1]) == ("completed", 2000)
