"""Reading a run takes two looks, at its row and at its log. What happens between them must not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from perdure import Engine, PerdureError, RunFailed, RunNotFound, Status, step, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

code = {"is broken": True}


@step
async def breaks() -> str:
    if code["is broken"]:
        text = "broken"
        raise ValueError(text)
    return "whole"


@workflow
async def breaking() -> str:
    return await breaks()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    code["is broken"] = True
    async with Engine(f"sqlite:///{tmp_path}/b.db", [breaking], poll="50ms", hint="10ms") as opened:
        run = await opened.start(breaking, id="b")
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        yield opened


def between(engine: Engine, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Let ``act`` happen once, after a row was read and before its log is."""
    connection = engine.connection
    plain = connection.read
    done = False

    async def read(look: Callable[..., Any], *args: Any) -> Any:
        nonlocal done
        if not done and look.__name__ in ("load", "appending"):
            done = True
            await act()
        return await plain(look, *args)

    monkeypatch.setattr(connection, "read", read)


ACTS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "result": lambda engine: engine.get("b").result(timeout=30),
    "history": lambda engine: engine.get("b").history(),
    "value": lambda engine: engine.get("b").value("x"),
    "retry": lambda engine: engine.retry("b"),
}


@pytest.mark.parametrize("name", ACTS)
async def test_a_purge_between_two_looks_is_told_as_one_before_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    between(engine, monkeypatch, lambda: engine.purge("b"))
    with pytest.raises(RunNotFound, match="was purged"):
        await ACTS[name](engine)
    with pytest.raises(RunNotFound, match="was purged"):
        await ACTS[name](engine)


async def test_a_retry_between_two_looks_does_not_make_the_run_look_parked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code["is broken"] = False
    between(engine, monkeypatch, lambda: engine.retry("b"))
    assert await engine.get("b").result(timeout=30) == "whole"
    assert await engine.get("b").status() == Status.COMPLETED


async def test_a_cancel_that_a_purge_overtakes_finds_nothing_to_cancel(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = await engine.start(breaking, id="later", delay="1h")

    async def finish_and_purge() -> None:
        await engine.cancel("later")
        await engine.purge("later")

    between(engine, monkeypatch, finish_and_purge)
    assert await later.cancel() is False


async def test_a_repeated_start_that_a_purge_overtakes_is_judged_by_the_tombstone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(engine, monkeypatch, lambda: engine.purge("b"))
    with pytest.raises(PerdureError):
        await engine.start("breaking", 1, id="b")
    assert (await engine.start(breaking, id="b")).id == "b"
