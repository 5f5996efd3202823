"""Values of a wrong type get a typed error with one clear line, wherever the engine takes a value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from perdure import Engine, RunNotFound, UsageError, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WRONG: Any = object()


@workflow
async def nothing() -> None: ...


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine(f"sqlite:///{tmp_path}/w.db", [nothing], worker=False) as opened:
        await opened.start(nothing, id="there")
        yield opened


@pytest.mark.parametrize("value", [WRONG, "ab", [("a", "b")], {"a": 1}, {1: "a"}, {"\ud800": "a"}, 5])
async def test_tags_must_map_text_to_text(engine: Engine, value: Any) -> None:
    with pytest.raises(UsageError):
        await engine.start(nothing, tags=value)
    with pytest.raises(UsageError):
        _ = [info async for info in engine.list(tag=value)]
    assert len([info async for info in engine.list()]) == 1


@pytest.mark.parametrize("value", [WRONG, 5, "", "\ud800", "a\0"])
async def test_names_must_be_text(engine: Engine, value: Any) -> None:
    for option in ("queue", "version"):
        with pytest.raises(UsageError):
            await engine.start("elsewhere", **{option: value})
    for condition in ("workflow", "queue", "version", "status", "cursor"):
        with pytest.raises(UsageError):
            _ = [info async for info in engine.list(**{condition: value})]
    assert len([info async for info in engine.list()]) == 1


@pytest.mark.parametrize("value", [WRONG, 5, "today", date(2026, 1, 1), datetime(2026, 1, 1)])  # noqa: DTZ001
async def test_times_must_be_aware_datetimes(engine: Engine, value: Any) -> None:
    for condition in ("since", "until"):
        with pytest.raises(UsageError):
            _ = [info async for info in engine.list(**{condition: value})]
    assert [info.id async for info in engine.list(since=datetime(2020, 1, 1, tzinfo=UTC))] == ["there"]


@pytest.mark.parametrize("value", [WRONG, "3", -1, 1.0, True])
async def test_a_limit_must_be_a_number_of_runs(engine: Engine, value: Any) -> None:
    with pytest.raises(UsageError):
        _ = [info async for info in engine.list(limit=value)]


@pytest.mark.parametrize("value", [WRONG, 5, None, "", "\ud800", "a\0", "x" * 300])
async def test_an_id_that_no_run_can_have_is_the_id_of_no_run(engine: Engine, value: Any) -> None:
    run = engine.get(value)
    for act in (run.status, run.result, run.history, run.cancel, lambda: run.value("x")):
        with pytest.raises(RunNotFound):
            await act()
    for operate in (engine.retry, engine.purge, engine.cancel):
        with pytest.raises(RunNotFound):
            await operate(value)
