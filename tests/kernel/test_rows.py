"""What plain asyncio gets wrong for a replay, row by row of the table in the explanation of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import perdure
from perdure.model.status import EventType
from tests.kernel import programs
from tests.kernel.outside import Outside, note
from tests.kernel.replay import again, check_everywhere, check_whole_replay, record, whole
from tests.kernel.steps import add, ahead, once
from tests.kernel.world import World, result

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("workflow", [programs.all_done_at_once, programs.first_completed, programs.gathers_in_a_set])
def test_the_done_set_of_wait_is_iterated_in_the_same_order(workflow: perdure.Workflow[..., Any], seed: int) -> None:
    check_everywhere(workflow, seed, settled=workflow is not programs.first_completed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_group_aborts_its_tasks_in_the_same_order(seed: int) -> None:
    check_everywhere(programs.group_abort, seed, settled=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_as_completed_makes_tasks_of_coroutines_in_argument_order(seed: int) -> None:
    original = check_everywhere(programs.completed_coroutines, seed, settled=False)
    first = {event.op: event.input for event in original.log if event.op in {f"{n}.0" for n in range(8)}}
    assert sorted(first.items()) == [(f"{n}.0", f'{{"left":{n},"right":1}}'.encode()) for n in range(8)]


ORIGINAL: Any = importlib.import_module("perdure.kernel.ordered")._as_completed


@perdure.workflow
async def with_an_old_as_completed() -> str:
    try:
        for future in ORIGINAL([add(1, 1), add(2, 2)]):
            await future
    except perdure.UsageError as error:
        return str(error)
    return "not refused"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_original_as_completed_is_refused_not_silently_unordered() -> None:
    world = record(with_an_old_as_completed)
    assert "random order" in result(world.log[-1])[1]
    gc.collect()


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Look only at what the test makes: to collect all that a long test process holds takes a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("seed", SEEDS)
def test_forgotten_tasks_are_kept_alive(seed: int) -> None:
    @perdure.workflow(name="forgetful")
    async def forgetful() -> int:
        async def behind() -> None:
            await asyncio.get_running_loop().create_future()

        async def told(n: int) -> None:
            await add(n, n)
            note(n)

        for n in range(5):
            asyncio.create_task(told(n))  # noqa: RUF006
        asyncio.create_task(behind())  # noqa: RUF006
        gc.collect()
        await asyncio.sleep(60)
        return await add(1, 1)

    original = check_everywhere(forgetful, seed, settled=True)
    assert sorted(original.outside.trace) == [(n,) for n in range(5)]


@pytest.mark.parametrize("seed", SEEDS)
def test_abandoned_generators_are_closed_in_order_at_the_end(seed: int) -> None:
    original = check_everywhere(programs.abandoned_generators, seed, settled=True)
    assert [seen for seen in original.outside.trace if seen[0] == "closing"] == [("closing", n) for n in (1, 2, 3)]


# -- eviction and drop -------------------------------------------------------------------------------------------


async def numbers() -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        note("generator", type(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]).__name__)
        await add(7, 7)
        note("unreachable while evicted")


@perdure.workflow
async def tidies_up() -> list[str]:
    seen: list[str] = []

    async def branch(n: int) -> None:
        try:
            await asyncio.sleep(3600 + n)
        except asyncio.CancelledError:
            note("looks like a cancel")
            raise
        except Exception:
            note("looks like an error")
            raise
        finally:
            note("finally", n)
            seen.append(str(await add(n, n)))
            asyncio.create_task(add(9, 9))  # noqa: RUF006
            await asyncio.sleep(1)

    generator = numbers()
    await anext(generator)
    async with asyncio.timeout(100_000), asyncio.TaskGroup() as group:
        group.create_task(branch(1))
        group.create_task(branch(2))
        try:
            await asyncio.sleep(7200)
        finally:
            await once(3)
    return sorted(seen)


def finish_with_evictions(workflow: perdure.Workflow[..., Any], seed: int) -> tuple[World, int]:
    """Evict the run whenever it is idle, and take it up again when it is due, until it ends."""
    world = World(workflow, seed=seed)
    world.evict_when_idle = True
    world.execute()
    evictions = 0
    while world.log[-1].type == EventType.RUN_WAITING:
        evictions += 1
        before = len(world.log)
        following = World(workflow, outside=Outside(seed + evictions))
        following.evict_when_idle = True
        following.execute(world.log)
        assert len(following.log) > before
        world = following
    return world, evictions


@pytest.mark.parametrize("seed", SEEDS)
def test_eviction_unwinds_without_a_trace(seed: int) -> None:
    plain = record(tidies_up, seed)
    world = World(tidies_up, seed=seed)
    world.evict_when_idle = True
    assert world.execute().type == EventType.RUN_WAITING
    gc.collect()
    assert not world.outside.calls
    assert [event.type for event in world.log] == ["run_started", "run_claimed", "run_waiting"]
    assert ("finally", 1) in world.outside.trace
    assert not {("looks like a cancel",), ("looks like an error",)} & set(world.outside.trace)
    ended, evictions = finish_with_evictions(tidies_up, seed)
    assert evictions >= 2
    assert result(ended.log[-1]) == result(plain.log[-1])
    check_whole_replay(ended)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dropped_run_unwinds_without_a_trace(seed: int) -> None:
    other = World(programs.sequence, seed=seed, run_id="other")

    def drop(world: World) -> None:
        assert world.run is not None
        world.run.drop("test")

    world = World(tidies_up, seed=seed)
    world.execute(during=lambda world: world.host.loop.call_later(5, drop, world))  # type: ignore[arg-type]
    assert world.log[-1].type == EventType.RUN_CLAIMED
    assert not world.outside.calls
    other.execute()
    gc.collect()
    assert set(other.outside.calls) <= {event.op for event in other.log}


# -- spinning, ahead, interrupts, claims -----------------------------------------------------------------------------


@perdure.workflow
async def spins() -> None:
    await add(1, 1)
    flag: list[int] = []
    while not flag:
        await asyncio.sleep(0)


def test_a_body_that_spins_is_parked_with_a_clear_reason() -> None:
    last = record(spins).log[-1]
    assert last.type == EventType.RUN_PARKED
    assert "never waits for anything" in result(last)[1]


@perdure.workflow
async def waits_for_nothing() -> None:
    await add(1, 1)
    await asyncio.Event().wait()


def test_a_body_that_waits_for_what_can_never_happen_is_parked() -> None:
    last = record(waits_for_nothing).log[-1]
    assert last.type == EventType.RUN_PARKED
    assert "can never happen" in result(last)[1]


@perdure.workflow
async def ahead_and_strict() -> list[int]:
    seen: list[int] = []

    async def fast(n: int) -> None:
        seen.append(await ahead(n))
        note(*seen)

    async def slow(n: int) -> None:
        seen.append(await add(n, 0))
        note(*seen)

    await asyncio.gather(*(work(n) for n in range(5) for work in (fast, slow)))
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_a_result_recorded_ahead_never_overtakes_a_strict_one(seed: int) -> None:
    original = check_everywhere(ahead_and_strict, seed, settled=False)
    order = [event.op for event in original.log if event.type == EventType.STEP_COMPLETED]
    seen = result(original.log[-1])[1]
    assert seen == [10 * (int(str(op)[0]) // 2) if int(str(op)[0]) % 2 == 0 else int(str(op)[0]) // 2 for op in order]


@perdure.workflow
async def interrupted() -> None:
    try:
        await add(1, 1)
        raise KeyboardInterrupt
    finally:
        await add(2, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_keyboard_interrupt_in_a_body_evicts_it_and_goes_on_its_way() -> None:
    world = World(interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.execute()
    assert [event.type for event in world.log] == ["run_started", "run_claimed", "step_completed", "step_completed"]
    assert world.outside.calls == {"0": 1, "1": 1}, "what the body cleans up with is recorded, its end is not"


@perdure.workflow
async def asks_who_it_is() -> list[list[int]]:
    seen = []
    for n in range(3):
        info = perdure.info()
        seen.append([info.epoch, info.attempt])
        note(*seen[-1])
        await add(n, n)
    return seen


def test_epoch_and_attempt_are_those_of_the_last_claim_the_body_has_seen() -> None:
    first = record(asks_who_it_is)
    second = again(first, first.log[:3], seed=1)
    assert second.log[3].type == EventType.RUN_CLAIMED
    assert result(second.log[-1])[1] == [[1, 1], [1, 1], [2, 2]]
    third = again(second, whole(second), seed=2)
    assert result(third.log[-1]) == result(second.log[-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_wait_for_gives_the_same_ids_on_every_python(seed: int) -> None:
    @perdure.workflow(name="waits")
    async def waits() -> int:
        return await asyncio.wait_for(add(1, 1), 100) + await asyncio.wait_for(asyncio.ensure_future(add(2, 2)), 100)

    original = check_everywhere(waits, seed, settled=True)
    steps = [event.op for event in original.log if event.kind == "step"]
    assert steps == ["1", "2.0"]


@perdure.workflow
async def gives_no_time() -> list[str]:
    seen = []
    for awaitable in (add(1, 1), asyncio.sleep(0, "slept")):
        try:
            seen.append(str(await asyncio.wait_for(awaitable, 0)))
        except TimeoutError:
            seen.append("no time")
    done = asyncio.get_running_loop().create_future()
    done.set_result("done")
    return [*seen, await asyncio.wait_for(done, -1), str(await asyncio.wait_for(add(1, 1), None))]


def test_wait_for_without_time_is_as_documented() -> None:
    original = check_everywhere(gives_no_time, 0, settled=True)
    assert result(original.log[-1])[1] == ["no time", "no time", "done", "2"]


# -- ids -----------------------------------------------------------------------------------------------------------


def ids_of(*, extra: bool) -> dict[str, list[str | None]]:
    @perdure.workflow(name="branches")
    async def branches() -> None:
        async def left() -> None:
            await add(1, 0)
            if extra:
                await add(99, 0)
            await add(2, 0)

        async def right() -> None:
            await asyncio.gather(add(3, 0), add(4, 0))
            await asyncio.sleep(1)
            await add(5, 0)

        await asyncio.gather(left(), right())
        await add(6, 0)

    found: dict[str, list[str | None]] = {}
    for event in record(branches).log:
        if event.kind == "step":
            found.setdefault((event.input or b"").decode(), []).append(event.op)
    return found


def test_a_step_more_in_one_branch_does_not_renumber_another() -> None:
    before, after = ids_of(extra=False), ids_of(extra=True)
    moved = {given for given, ops in before.items() if after[given] != ops}
    assert moved == {'{"left":2,"right":0}'}
    assert before['{"left":1,"right":0}'] == ["0.0"]
    assert before['{"left":4,"right":0}'] == ["1.1.0"]


@perdure.workflow
async def cleans_up_deeply() -> None:
    async def deep(levels: int) -> None:
        try:
            if levels:
                await deep(levels - 1)
            await asyncio.sleep(1000)
        finally:
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()
            note("level", levels)
            await add(levels, 0)

    await deep(30)


def test_clean_up_that_awaits_many_times_is_unwound_to_the_end() -> None:
    world = World(cleans_up_deeply)
    world.evict_when_idle = True
    assert world.execute().type == EventType.RUN_WAITING
    assert world.outside.trace == [("level", n) for n in range(31)]
    assert not world.outside.calls
