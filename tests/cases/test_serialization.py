"""Real complaints about values: what cannot be stored fails clearly, what can comes back the same."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import CodecError, Retry, RunFailed, Status, StepFailed, step, workflow
from tests.cases.conftest import World
from tests.cases.ledger import note
from tests.process import Spawner


class Awkward(Exception):
    """Has required arguments that it does not pass on."""

    def __init__(self, *, code: int, where: str) -> None:
        super().__init__()
        self.code, self.where = code, where

    def __str__(self) -> str:
        return f"code {self.code} at {self.where}"


@step
async def raise_awkward() -> None:
    note()
    raise Awkward(code=7, where="here")


@workflow
async def catches_awkward() -> None:
    try:
        await raise_awkward()
    except (Awkward, StepFailed) as error:
        note("caught", value=[type(error).__name__, "code 7 at here" in str(error)])
        raise


READER = """
import asyncio, sys, perdure

async def main(url, run_id):
    async with perdure.Engine(url, worker=False) as engine:
        run = engine.get(run_id)
        print(await run.status())
        print([info.detail async for info in engine.list()])
        print([event.error for event in await run.history() if event.error])
        try:
            await run.result(timeout=30)
        except perdure.RunFailed as error:
            print("RAISED", error.type_name, "|", error.message)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_case_ser_01(
    engine: perdure.Engine, spawn: Spawner, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """An exception whose constructor needs arguments: looking at the failed run raises TypeError.

    Raised in a step, caught and raised again in the body, read here and from a process without the class.
    Source: dbos-inc/dbos-transact-py#371.
    """
    run = await engine.start(catches_awkward, id="r")
    with pytest.raises(RunFailed, match="code 7 at here") as caught:
        await run.result(timeout=30)
    assert caught.value.type_name.endswith("Awkward")
    assert await run.status() == Status.FAILED
    assert [entry.value for entry in world.ledger.entries("caught")] == [["Awkward", True]]
    if "///" in engine.url:
        path = str(Path(perdure.__file__).parents[1])
        out = spawn.python(READER, engine.url, "r", env={"PYTHONPATH": path}).finish().out
        status, listed, errors, raised = out.splitlines()
        assert status == "failed"
        assert all("Awkward: code 7 at here" in line for line in (listed, errors))
        assert raised.startswith("RAISED")
        assert raised.endswith("Awkward | code 7 at here")


class Broken(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def with_socket() -> Exception:
    with socket.socket() as sock:
        return ValueError("socket", sock)


def with_cause() -> Exception:
    error = ValueError("outer")
    error.__cause__ = RuntimeError("inner", threading.Lock())
    return error


def with_cycle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    return one


HOSTILE: dict[str, tuple[Callable[[], Exception], str, str]] = {
    "open socket": (with_socket, "ValueError", "socket"),
    "lock": (lambda: ValueError("lock", threading.Lock()), "ValueError", "lock"),
    "lambda": (lambda: ValueError(lambda: 1), "ValueError", "function"),
    "cause": (with_cause, "ValueError", "outer"),
    "cycle": (with_cycle, "ValueError", "one"),
    "broken text": (Broken, "Broken", ""),
    "group": (
        lambda: ExceptionGroup("three", [ValueError("x"), KeyError("y"), OSError("z")]), "ExceptionGroup", "three",
    ),
}  # fmt: skip


@step
async def raise_hostile(which: str) -> None:
    error = HOSTILE[which][0]()
    raise error


@workflow
async def hostile(which: str) -> None:
    await raise_hostile(which)


@pytest.mark.parametrize("which", HOSTILE)
async def test_case_ser_03(engine: perdure.Engine, which: str) -> None:
    """An exception carries something that cannot be stored: the failure itself cannot be stored, the caller waits on.

    Open socket, lock, lambda, such a cause, a cyclic context, a `__str__` that raises, a group of three.
    Source: celery/celery PR#835, dbos-inc/dbos-transact-java PR#228.
    """
    run = await engine.start(hostile, which)
    with pytest.raises(RunFailed) as caught:
        await run.result(timeout=2)
    _, type_name, text = HOSTILE[which]
    assert caught.value.type_name.endswith(type_name)
    assert text in caught.value.message
    assert await run.status() == Status.FAILED


@step
async def boom() -> None:
    raise ValueError("boom")


@workflow
async def reraises() -> None:
    try:
        await boom()
    except ValueError:
        note("caught")
        raise


@pytest.mark.parametrize("codecs", [("json",), ("json", "zstd")])
async def test_case_ser_04(world: World, codecs: tuple[str, ...]) -> None:
    """The real error is masked by an error of the serializer.

    For each codec that comes with the engine: ValueError("boom") is stored as such, with the step's line.
    Source: dbos-inc/dbos-transact-py#730.
    """
    async with world.engine([reraises], codecs=codecs) as engine:
        with pytest.raises(RunFailed) as caught:
            await engine.run(reraises)
    error = caught.value
    assert (error.type_name.split(".")[-1], error.message) == ("ValueError", "boom")
    assert isinstance(error.__cause__, ValueError)
    assert 'raise ValueError("boom")' in error.traceback_text
    assert world.ledger.count("caught") == 1


def local_instance() -> object:
    class Local:
        pass

    return Local()


async def coroutine() -> None:
    pass


UNSTORABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "lock": (threading.Lock, "lock"),
    "generator": (lambda: (n for n in range(3)), "generator"),
    "coroutine": (coroutine, "coroutine"),
    "file": (Path("/dev/null").open, "TextIOWrapper"),
    "lambda": (lambda: lambda: 1, "function"),
    "local": (local_instance, "Local"),
}
KEPT: list[Any] = []


def make(which: str) -> Any:
    value = UNSTORABLE[which][0]()
    KEPT.append(value)
    return value


@step(retry=Retry(attempts=5, initial="1ms"))
async def give(which: str) -> Any:
    note()
    return make(which)


@workflow
async def step_gives(which: str) -> Any:
    return await give(which)


@workflow
async def body_gives(which: str) -> Any:
    return make(which)


@pytest.mark.parametrize("which", UNSTORABLE)
async def test_case_ser_05(engine: perdure.Engine, which: str, world: World) -> None:
    """A result that cannot be stored is stored as nonsense, or recovered for ever.

    From a step and from a body: fails with a codec error that names the step and the type; never tried again.
    Source: dbos-inc/dbos-transact-py#111, dbos-inc/dbos-transact-py PR#744.
    """
    try:
        for flow, named in ((step_gives, "give"), (body_gives, "body_gives")):
            run = await engine.start(flow, which)
            with pytest.raises(RunFailed) as caught:
                await run.result(timeout=3)
            assert isinstance(caught.value.__cause__, CodecError)
            assert UNSTORABLE[which][1] in str(caught.value)
            assert repr(named) in str(caught.value)
            assert all(event.result is None for event in await run.history() if event.type != "run_started")
        assert world.ledger.count("give") == 1
    finally:
        while KEPT:
            close = getattr(KEPT.pop(), "close", None)
            if close is not None:
                close()


@step
async def same(value: Any) -> Any:
    return value


@step
async def raise_text(text: str) -> None:
    raise ValueError(text)


@workflow
async def echo(value: Any) -> list[Any]:
    await perdure.publish("value", value)
    return [value, await same(value)]


@workflow
async def raises_text(text: str) -> None:
    await raise_text(text)


@pytest.mark.parametrize("text", ["a\x00b", "🐟 中 é̂", "\ud800", "\x1b[31m\r\n"])
async def test_case_ser_06(engine: perdure.Engine, text: str) -> None:
    """A NUL character in a value makes the database refuse it, and the task can neither succeed nor fail.

    As input, step result, published value, dict key and exception text; ids, names and tags with it are refused.
    Source: kestra-io/kestra PR#10653, osbuild/osbuild-composer PR#4779.
    """
    value = {"k" + text: [text]}
    run = await engine.start(echo, value)
    assert await run.result(timeout=30) == [value, value]
    assert await run.value("value") == value
    failed = await engine.start(raises_text, text)
    with pytest.raises(RunFailed):
        await failed.result(timeout=30)
    assert await failed.status() == Status.FAILED
    if "🐟" not in text:
        before = len([info async for info in engine.list()])
        options: list[dict[str, Any]] = [{"id": text}, {"queue": text}, {"tags": {text: "v"}}, {"tags": {"k": text}}]
        for option in options:
            with pytest.raises(perdure.UsageError):
                await engine.start(echo, 1, **option)
        assert len([info async for info in engine.list()]) == before


async def test_case_ser_07(engine: perdure.Engine) -> None:
    """NaN and infinities: the database's JSON type refuses them, and the result of hours is thrown away.

    Nan, both infinities and minus zero, through a step and the log. (The HTTP body comes with the HTTP part.)
    Source: ZJU-REAL/Polaris#287, Climate-REF/climate-ref#839.
    """
    value = {"m": math.nan, "i": math.inf, "n": -math.inf, "z": -0.0}
    for found in await engine.run(echo, value):
        assert math.isnan(found["m"])
        assert (found["i"], found["n"]) == (math.inf, -math.inf)
        assert math.copysign(1, found["z"]) == -1.0


async def test_case_ser_09(engine: perdure.Engine) -> None:
    """Emoji and other four-byte characters become question marks or errors.

    As value, run id, tag, queue name and exception text, on both backends there are; MySQL's charsets come with MySQL.
    Source: celery/celery#4742, celery/celery#3858.
    """
    text = "🐟 中 é̂"
    run: perdure.Run[Any] = await engine.start(echo, text, id=text, tags={text: text})
    assert await run.result(timeout=30) == [text, text]
    assert [info.id async for info in engine.list(tag={text: text})] == [text]
    queued: perdure.Run[Any] = await engine.start(echo, text, queue=text)
    assert (await queued.info()).queue == text
    failed = await engine.start(raises_text, text)
    with pytest.raises(RunFailed) as caught:
        await failed.result(timeout=30)
    assert caught.value.message == text
    assert (await failed.info()).detail == f"ValueError: {text}"


def test_every_value_of_the_hostile_cases_is_really_hostile() -> None:
    for error, _, _ in HOSTILE.values():
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            json.dumps([str(error()), error().args, error().__cause__ or error().__context__ or error()])
    assert asyncio.iscoroutinefunction(coroutine)
