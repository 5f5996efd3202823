"""A body cannot tell a step that is executed elsewhere from one that is executed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Engine, Retry, RunFailed, Status, UsageError, step, step_info, workflow
from tests.elsewhere.flows import QUEUES, QUICK, ROUTES, seen


class Odd(Exception):
    """Its constructor takes something else than its text."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Closed(Exception):
    """Holds what cannot be stored."""

    def __init__(self) -> None:
        super().__init__("closed")
        self.lock = open


@dataclass
class Film:
    """A value of a class of its own."""

    name: str
    year: int
    shot: datetime


def _caused() -> Exception:
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    error.add_note("look here")
    return error


def _hidden() -> Exception:
    class Hidden(Exception):
        pass

    return Hidden("of a class nobody can import")


FAILURES: dict[str, Callable[[], BaseException]] = {
    "builtin": lambda: ValueError("no"),
    "odd": lambda: Odd(code=7),
    "closed": Closed,
    "caused": _caused,
    "group": lambda: ExceptionGroup("both", [Odd(code=1), OSError(2, "gone", "a/file")]),
    "hidden": _hidden,
    "stop": lambda: StopIteration(3),
    "cancelled": asyncio.CancelledError,
    "timeout": lambda: TimeoutError("of its own"),
    "long": lambda: ValueError("x" * 100_000),
}
VALUES: dict[str, Any] = {
    "film": Film("M", 1931, datetime(1931, 5, 11, tzinfo=UTC)),
    "tuple": (1, (2, 3)),
    "set": {1, 2},
    "bytes": b"\0\xff",
    "nothing": None,
    "deep": {"a": [{"b": (1.5, True)}]},
    "large": "x" * 300_000,
}


@step(name="media.fail", retry=Retry(attempts=1))
async def fail(kind: str) -> None:
    error = FAILURES[kind]()
    raise error


@step(name="media.give")
async def give(kind: str) -> Any:
    return VALUES[kind]


@step(name="media.take")
async def take(film: Film, *rest: int, year: int = 3, **more: str) -> Film:
    assert isinstance(film, Film)
    return Film(film.name, film.year + year + sum(rest) + len(more), film.shot)


@step(name="media.accept")
async def accept(value: Any) -> str:
    return str(value)


@step(name="media.closed")
async def closed() -> Any:
    return open


@step(name="media.tell")
async def tell() -> list[Any]:
    info = step_info()
    return [info.run_id, info.name, info.key, info.attempt]


@step(name="media.beat")
async def beat() -> int:
    step_info().heartbeat({"frame": 7})
    await asyncio.sleep(0.05)
    return 7


@workflow
async def failing(kind: str) -> list[Any]:
    try:
        await fail(kind)
    except Exception as error:
        return _told(error)
    return []


def _told(error: BaseException) -> list[Any]:
    inner = [_told(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    cause = None if error.__cause__ is None else _told(error.__cause__)
    # An error says where the step was executed.
    held = {name: str(value).replace("r:0", "r") for name, value in vars(error).items() if not name.startswith("__")}
    text = str(error).replace("'r:0'", "'r'")
    return [type(error).__name__, text, inner, cause, held, len(getattr(error, "__notes__", []))]


@workflow
async def giving(kind: str) -> list[Any]:
    value = await give(kind)
    return [type(value).__name__, value == VALUES[kind]]


@workflow
async def taking() -> list[Any]:
    film: Any = VALUES["film"]
    return [(await take(film, 1, 2, year=5, a="b")).year, await tell()]


@workflow
async def refused() -> list[str]:
    found = []
    for call in (lambda: accept(open), closed):
        try:
            await call()
        except Exception as error:
            found.append(type(error).__name__)
    return found


@workflow
async def beating() -> int:
    return await beat()


@workflow
async def hiding() -> int:
    @step(name="media.inner")
    async def inner() -> int:
        return 1

    return await inner()


FLOWS: list[Any] = [failing, giving, taking, refused, beating, hiding]


async def both(flow: Any, *given: Any) -> tuple[Any, Any]:
    """Give what a flow returns with its steps here, and with its steps elsewhere."""
    found = []
    for routes in ({}, ROUTES):
        async with Engine("sqlite://", FLOWS, queues=QUEUES, routes=routes, **QUICK) as engine:
            run = await engine.start(flow, *given, id="r")
            found.append(await run.result(timeout=20))
            sent = [event for event in await run.history() if event.type == "step_sent"]
            assert bool(sent) is bool(routes)
    return found[0], found[1]


@pytest.mark.parametrize("kind", FAILURES)
async def test_failures(kind: str) -> None:
    here, elsewhere = await both(failing, kind)
    assert elsewhere == here


@pytest.mark.parametrize("kind", VALUES)
async def test_results(kind: str) -> None:
    here, elsewhere = await both(giving, kind)
    assert elsewhere == here


async def test_arguments_and_what_a_step_knows_of_itself() -> None:
    here, elsewhere = await both(taking)
    assert elsewhere == here


async def test_what_cannot_be_stored() -> None:
    here, elsewhere = await both(refused)
    assert elsewhere == here == ["CodecError", "CodecError"]


async def test_a_heartbeat_is_recorded_where_the_step_is_executed() -> None:
    async with Engine("sqlite://", FLOWS, queues=QUEUES, routes=ROUTES, **QUICK) as engine:
        run = await engine.start(beating, id="r")
        assert await run.result(timeout=20) == 7
        assert (await seen(engine.get("r:0"), "step_heartbeat")).result == {"frame": 7}


async def test_a_step_inside_a_function_says_what_to_do() -> None:
    async with Engine("sqlite://", FLOWS, queues=QUEUES, routes=ROUTES, **QUICK) as engine:
        run = await engine.start(hiding, id="r")
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=20)
        assert isinstance(failed.value.__cause__, UsageError)
        assert "top of module" in str(failed.value.__cause__)
        assert "r:0" not in [info.id async for info in engine.list()]


async def test_whoever_executes_one_run_only_executes_its_steps_too(tmp_db: str) -> None:
    async with Engine(tmp_db, FLOWS, worker=False, queues=QUEUES, routes=ROUTES) as client:
        await client.start(giving, "tuple", id="r")
    async with Engine(tmp_db, FLOWS, queues=QUEUES, routes=ROUTES, only="r", **QUICK) as engine:
        assert await engine.get("r").result(timeout=20) == ["tuple", True]
        assert await engine.get("r").status() is Status.COMPLETED
        assert [info.id async for info in engine.list()] == ["r"]
