"""What a body finds on its own event loop, through a whole engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.kernel import loop as run_loop
from perdure.kernel import ordered
from perdure.kernel.loop import refuse_unordered
from perdure.model.status import EventType

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


async def run(workflow: Any, *args: Any) -> tuple[Any, list[perdure.Event]]:
    async with perdure.Engine(f"memory://{workflow.name}", [workflow], grace=0) as engine:
        handle = await engine.start(workflow, *args)
        return await handle.result("15s"), await handle.history()


@perdure.step
async def one() -> int:
    return 1


@perdure.workflow
async def cancels_callbacks() -> list[Any]:
    loop = asyncio.get_running_loop()
    called: list[str] = []
    soon = loop.call_soon(called.append, "soon")
    soon.cancel()
    later = loop.call_later(0.001, called.append, "later")
    kept = loop.call_later(0.001, called.append, "kept")
    due: float = later.when()
    later.cancel()
    await asyncio.sleep(0.002)
    return [called, soon.cancelled(), later.cancelled(), kept.cancelled(), due >= loop.time() - 60]


async def test_a_callback_that_was_cancelled_is_not_called() -> None:
    result, _ = await run(cancels_callbacks)
    assert result == [["kept"], True, True, False, True]


@perdure.workflow
async def asks_from_a_callback() -> str:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(lambda: loop.call_later(0.001, done.set_result, "rang"))
    return str(await done)


async def test_what_a_callback_asks_for_has_an_id_of_its_own() -> None:
    result, log = await run(asks_from_a_callback)
    assert result == "rang"
    assert [event.op for event in log if event.type == EventType.TIMER_FIRED] == ["~0"]


@perdure.workflow
async def many_tasks() -> list[int]:
    loop: Any = asyncio.get_running_loop()
    most = 0
    for _ in range(1000):
        await asyncio.create_task(asyncio.sleep(0))
        most = max(most, len(loop.tasks))
    return [most, len(asyncio.all_tasks())]


async def test_tasks_that_are_done_are_forgotten() -> None:
    (most, left), _ = await run(many_tasks)
    assert most < 200
    assert left == 1


@perdure.workflow
async def looks_at_the_loop() -> list[bool]:
    loop = asyncio.get_running_loop()
    loop.set_debug(enabled=True)
    await loop.shutdown_asyncgens()
    return [loop.is_running(), loop.is_closed(), loop.get_debug()]


async def test_the_loop_runs_is_open_and_never_debugs() -> None:
    assert (await run(looks_at_the_loop))[0] == [True, False, False]


@perdure.workflow
async def reports() -> int:
    loop = asyncio.get_running_loop()
    loop.default_exception_handler({"message": "told by the body"})
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(0)
    return await one()


async def test_an_error_in_a_callback_is_told_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    assert (await run(reports))[0] == 1
    assert "told by the body" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@perdure.workflow
async def cancels_what_is_done() -> list[bool]:
    marker: Any = perdure.checkpoint("here")
    await marker
    return [marker.cancel(), marker.done(), marker.cancelled()]


async def test_what_is_answered_cannot_be_cancelled() -> None:
    assert (await run(cancels_what_is_done))[0] == [False, True, False]


async def numbers() -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        SEEN.append("generator unwinds")
        await asyncio.sleep(0)
        SEEN.append("never: clean-up must not wait")


@perdure.workflow
async def waits_in_a_generator() -> None:
    try:
        async for _ in numbers():
            await perdure.sleep("1h")
    finally:
        try:
            await asyncio.create_task(asyncio.sleep(1))
        except BaseException as error:
            SEEN.append(type(error).__name__)
            raise


async def test_a_body_that_leaves_memory_starts_nothing_while_it_is_unwound() -> None:
    async with perdure.Engine("memory://unwinds", [waits_in_a_generator], grace=0) as engine:
        handle = await engine.start(waits_in_a_generator)
        async with asyncio.timeout(40):
            while not any(event.type == EventType.RUN_CLAIMED for event in await handle.history()):
                await asyncio.sleep(0.001)
            worker: Any = engine._worker
            while handle.id not in worker.host.idle:
                await asyncio.sleep(0.001)
    assert sorted(SEEN) == ["Evicted", "generator unwinds"]


async def test_outside_a_body_asyncio_is_as_it_was() -> None:
    async def give(value: int) -> int:
        return value

    assert sorted([await done for done in asyncio.as_completed([give(1), give(2)])]) == [1, 2]
    assert await asyncio.wait_for(give(3), 1) == 3
    gathered = asyncio.gather(give(4), give(5))
    assert hash(gathered) == object.__hash__(gathered)
    assert list(await gathered) == [4, 5]
    assert asyncio.current_task() in asyncio.all_tasks()
    assert await left_behind_by_a_group() == (sys.version_info < (3, 13))


async def left_behind_by_a_group() -> int:
    """Count the cancels that asyncio itself leaves behind."""

    async def abort() -> None:
        raise ZeroDivisionError

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(abort())
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def test_the_replacements_are_put_in_place_once() -> None:
    before = asyncio.as_completed, asyncio.wait_for, run_loop.AS_COMPLETED_CODE
    ordered.install()
    assert (asyncio.as_completed, asyncio.wait_for, run_loop.AS_COMPLETED_CODE) == before


def test_a_task_made_by_a_callback_has_no_caller_to_refuse() -> None:
    refuse_unordered(None)
