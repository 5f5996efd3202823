"""A step's task has had its first turn when it is there, on every version of Python."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from perdure.runtime.eager import Starter

NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


def outside_tasks(make: Any) -> Any:
    """Call ``make(loop)`` from a plain callback of a new loop and return what it gives, awaited if it is a task."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def call() -> None:
            try:
                done.set_result(make(loop))
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon(call)
        found = await done
        return await found if isinstance(found, asyncio.Task) else found

    return asyncio.run(main())


@pytest.mark.parametrize("at_once", [True, False])
def test_a_task_has_had_its_first_turn_when_it_is_asked_to(at_once: bool) -> None:
    told: list[str] = []

    async def step() -> None:
        told.append("began")
        await asyncio.sleep(0)
        told.append("ended")

    def make(loop: asyncio.AbstractEventLoop) -> list[str]:
        task = Starter(loop).task(step(), "name", contextvars.copy_context(), at_once=at_once)
        loop.call_soon(task.cancel)
        return list(told)

    assert outside_tasks(make) == (["began"] if at_once else [])


def test_it_runs_as_any_task_does() -> None:
    """It is the current task, in its own context, on a loop that is as it was; timeouts and errors work."""

    async def step() -> None:
        task = asyncio.current_task()
        assert task is not None
        assert task.get_name() == "charge"
        assert NUMBER.get() == 7
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        message = "as it should"
        raise ValueError(message)

    def make(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        context = contextvars.Context()
        context.run(NUMBER.set, 7)
        task = Starter(loop).task(step(), "charge", context, at_once=True)
        assert "call_soon" not in vars(loop)
        assert asyncio.current_task(loop) is None
        assert not task.done()
        return task

    with pytest.raises(ValueError, match="as it should"):
        outside_tasks(make)


def test_it_may_end_at_once() -> None:
    async def step() -> None:
        NUMBER.set(1)

    def make(loop: asyncio.AbstractEventLoop) -> bool:
        return Starter(loop).task(step(), "name", contextvars.copy_context(), at_once=True).done()

    assert outside_tasks(make) is True


def test_no_task_begins_inside_another() -> None:
    async def main() -> None:
        told: list[asyncio.Task[Any] | None] = []

        async def step() -> None:
            told.append(asyncio.current_task())

        task = Starter(asyncio.get_running_loop()).task(step(), "name", contextvars.copy_context(), at_once=True)
        assert told == []
        await task
        assert told == [task]

    asyncio.run(main())


def test_a_loop_with_a_task_factory_makes_the_tasks() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__name__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def step() -> None:
        pass

    def make(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        loop.set_task_factory(factory)
        return Starter(loop).task(step(), "name", contextvars.copy_context(), at_once=True)

    outside_tasks(make)
    assert "step" in made
