"""Real complaints about sizes: what is too large is stored, cut with a mark, or refused once."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import CodecError, Retry, RunFailed, Status, StoreError, step, workflow
from tests.cases.conftest import World
from tests.cases.ledger import note


@step
async def same(value: Any) -> Any:
    return value


@step
async def raise_text(text: str) -> None:
    raise ValueError(text)


@workflow
async def echo(value: Any) -> list[Any]:
    return [value, await same(value)]


@workflow
async def raises_text(text: str) -> None:
    await raise_text(text)


async def coroutine() -> None:
    pass


PACKET = 16_000_000
"""What MariaDB takes at once as it is installed."""


@workflow
async def length(value: Any) -> int:
    return len(await same(value))


@pytest.mark.parametrize("size", [1_000_000, 20_000_000, pytest.param(100_000_000, marks=[pytest.mark.nightly])])
async def test_case_ser_13(engine: perdure.Engine, world: World, size: int) -> None:
    """A value above a limit is tried for ever with an obscure error; the run never fails.

    Input, result and exception text of a given size are stored and returned; with a limit set they are refused once,
    with size and limit, and the worker goes on. Source: temporalio/sdk-python#1285, pydantic/pydantic-ai#7164, PR#7157.
    """
    if engine.url.startswith("mysql") and size > PACKET:
        with pytest.raises(StoreError, match=r"more than the server takes at once .* raise max_allowed_packet"):
            await engine.start(length, "x" * size)
        assert await engine.run(length, "x") == 1
    else:
        assert await engine.run(length, "x" * size) == size
        failed = await engine.start(raises_text, "x" * size)
        with pytest.raises(RunFailed, match="xxx"):
            await failed.result(timeout=30)
    async with perdure.Engine("sqlite://", [length, makes_big, echo], max_bytes=500_000) as limited:
        with pytest.raises(CodecError, match=r"500,?000"):
            await limited.start(length, "x" * size)
        run = await limited.start(makes_big, size)
        with pytest.raises(RunFailed, match=r"500,?000"):
            await run.result(timeout=30)
        assert world.ledger.count("big") == 1
        assert await limited.run(echo, 1) == [1, 1]
        text = await limited.start(raises_text_of, size)
        with pytest.raises(RunFailed):
            await text.result(timeout=30)
        assert await text.status() == Status.FAILED


@step(retry=Retry(attempts=3, initial="1ms"))
async def big(size: int) -> str:
    note()
    return "x" * size


@workflow
async def makes_big(size: int) -> str:
    return await big(size)


@step
async def raise_big(size: int) -> None:
    raise ValueError("x" * size)


@workflow
async def raises_text_of(size: int) -> None:
    await raise_big(size)


def dig(depth: int) -> None:
    if depth == 0:
        raise ValueError("deep")
    dig(depth - 1)


@step
async def raise_deep() -> None:
    dig(900)


@workflow
async def raises_deep() -> None:
    await raise_deep()


async def test_case_ser_14(engine: perdure.Engine) -> None:
    """An error text longer than its column makes the status write fail.

    A message of 5 MB and a traceback of 900 frames are cut with a visible mark; too long names are refused early.
    Source: celery/django-celery PR#12.
    """
    long = await engine.start(raises_text_of, 5_000_000)
    with pytest.raises(RunFailed) as caught:
        await long.result(timeout=30)
    assert await long.status() == Status.FAILED
    assert len(caught.value.message) < 5_000_000
    assert "…" in caught.value.message or "cut" in caught.value.message
    assert ((await long.info()).detail or "").endswith("…")
    deep = await engine.start(raises_deep)
    with pytest.raises(RunFailed, match="deep") as caught:
        await deep.result(timeout=30)
    assert 'raise ValueError("deep")' in caught.value.traceback_text
    with pytest.raises(perdure.UsageError, match="255"):
        step(name="n" * 600)(coroutine)
    with pytest.raises(perdure.UsageError, match="255"):
        await engine.start(echo, 1, queue="q" * 300)
