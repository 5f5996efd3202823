"""I/O belongs in steps: a body that tries gets one clear error, and the run is none the worse for it."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

import perdure
from perdure.kernel import loop as run_loop
from tests.kernel.outside import Outside, enter
from tests.kernel.replay import record
from tests.kernel.steps import add, plus
from tests.kernel.world import result

FOREIGN = run_loop._FOREIGN.split()


async def refusal(attempt: Any) -> str:
    """Make the attempt, and give the error it meets."""
    try:
        outcome = attempt()
        if asyncio.iscoroutine(outcome) or asyncio.isfuture(outcome):
            await outcome
    except perdure.UsageError as error:
        return str(error)
    return "not refused"


@perdure.workflow
async def calls_everything() -> dict[str, str]:
    loop = asyncio.get_running_loop()
    return {name: await refusal(functools.partial(getattr(loop, name), None)) for name in FOREIGN}


def test_every_method_of_the_loop_that_does_io_says_what_to_do_instead() -> None:
    told = result(record(calls_everything).log[-1])[1]
    assert set(told) == set(FOREIGN)
    for name, text in told.items():
        assert f"a workflow body cannot do I/O ({name} was called in run 'run')" in text
        assert "do this in a step" in text


def test_no_method_of_an_event_loop_is_forgotten() -> None:
    own = {name for name in vars(run_loop.RunLoop) if not name.startswith("_")}
    asyncio_has = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    inherited = asyncio_has - own
    assert inherited <= {"slow_callback_duration", "get_task_factory", "get_exception_handler", "set_exception_handler"}


ATTEMPTS: dict[str, Any] = {
    "to_thread": lambda: asyncio.to_thread(print),
    "open_connection": lambda: asyncio.open_connection("127.0.0.1", 9),
    "start_server": lambda: asyncio.start_server(print, "127.0.0.1", 0),
    "create_subprocess_exec": lambda: asyncio.create_subprocess_exec("true"),
    "create_subprocess_shell": lambda: asyncio.create_subprocess_shell("true"),
    "run_in_executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
    "call_soon_threadsafe": lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
}


@perdure.workflow
async def tries(name: str) -> list[Any]:
    return [await refusal(ATTEMPTS[name]), await add(1, 1)]


@pytest.mark.parametrize("name", ATTEMPTS)
def test_io_through_asyncio_is_refused_and_the_run_goes_on(name: str) -> None:
    text, total = result(record(tries, args=(name,)).log[-1])[1]
    assert "a workflow body cannot do I/O" in text
    assert total == 2


@perdure.workflow
async def awaits_a_foreign_future() -> str:
    foreign = asyncio.new_event_loop()
    try:
        await foreign.create_future()
    except RuntimeError as error:
        return str(error)
    finally:
        foreign.close()
    return "not refused"


def test_a_future_of_another_loop_is_refused() -> None:
    assert "attached to a different loop" in result(record(awaits_a_foreign_future).log[-1])[1]


@perdure.workflow
async def runs_another_loop() -> str:
    try:
        coroutine = add(1, 1)
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()
    except RuntimeError as error:
        return str(error)
    return "not refused"


@perdure.workflow
def sync_runs_another_loop() -> str:
    async def inner() -> int:
        return await add(1, 1)

    try:
        asyncio.run(inner())
    except perdure.UsageError as error:
        return str(error)
    return "not refused"


@perdure.workflow
async def blocks() -> str:
    try:
        return str(plus(1, 1))
    except perdure.UsageError as error:
        return str(error)


def test_a_loop_inside_a_body_is_refused() -> None:
    assert "cannot be called from a running event loop" in result(record(runs_another_loop).log[-1])[1]
    world = record(sync_runs_another_loop)
    assert "was called on another event loop" in result(world.log[-1])[1]
    assert not world.outside.calls


def test_a_blocking_step_in_an_async_body_says_what_to_write() -> None:
    assert "await plus.aio(...)" in result(record(blocks).log[-1])[1]


@perdure.workflow
async def waits_oddly(kind: str) -> Any:
    loop = asyncio.get_running_loop()
    try:
        if kind == "for ever":
            await asyncio.sleep(float("inf"))
        elif kind == "beyond":
            loop.call_at(1e15, print)
        elif kind == "no name":
            perdure.checkpoint("")
    except ValueError as error:
        return str(error)
    return "not refused"


@pytest.mark.parametrize("kind", ["for ever", "beyond", "no name"])
def test_what_cannot_be_recorded_is_refused(kind: str) -> None:
    assert result(record(waits_oddly, args=(kind,)).log[-1])[1] != "not refused"


def test_author_functions_outside_a_run_say_so() -> None:
    enter(Outside())
    for call in (perdure.now, perdure.info, perdure.random, perdure.uuid4, lambda: perdure.checkpoint("x")):
        with pytest.raises(perdure.UsageError, match="was called outside a run"):
            call()
    with pytest.raises(perdure.UsageError, match="outside a step"):
        perdure.step_info()
