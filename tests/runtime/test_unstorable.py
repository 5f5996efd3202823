"""A run whose records the database refuses ends or is given up; it never keeps the engine busy for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import perdure
from perdure.model.write import Append, Failed


@perdure.step
async def nothing() -> int:
    return 1


@perdure.workflow
async def short() -> int:
    return await nothing()


@perdure.workflow
async def badly_named(name: str) -> None:
    await perdure.checkpoint(name)


@perdure.workflow
async def raises(text: str) -> None:
    raise ValueError(text)


async def test_a_run_of_which_nothing_can_be_recorded_is_given_up(
    tmp_db: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with perdure.Engine(tmp_db, [short], grace=0) as engine:
        store: Any = engine._store
        commit = store.commit

        def refusing(batch: Sequence[Any], *, block: bool = True) -> Any:
            if any(type(write) is Append and write.run_id == "bad" for write in batch):
                return [Failed(ValueError("no")) if write.run_id == "bad" else None for write in batch]
            return commit(batch, block=block)

        store.commit = refusing
        await engine.start(short, id="bad")
        async with asyncio.timeout(40):
            while "nothing can be recorded" not in caplog.text:
                await asyncio.sleep(0.01)
        assert await engine.run(short) == 1


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "n" * 256])
async def test_a_milestone_with_a_name_that_cannot_be_stored_is_refused(tmp_db: str, name: str) -> None:
    async with perdure.Engine(tmp_db, [badly_named], grace=0) as engine:
        with pytest.raises(perdure.RunFailed, match="the name of a checkpoint must be"):
            await (await engine.start(badly_named, name)).result(timeout=30)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "🐟"])
async def test_a_failure_is_recorded_whatever_its_text(tmp_db: str, text: str) -> None:
    async with perdure.Engine(tmp_db, [raises], grace=0) as engine:
        run = await engine.start(raises, text)
        with pytest.raises(perdure.RunFailed):
            await run.result(timeout=30)
        assert (await run.info()).detail in (f"ValueError: {text}", "ValueError: a\\x00b", "ValueError: \\ud800")


@perdure.step
async def value(text: str) -> str:
    return text


@perdure.workflow
async def several() -> list[str]:
    results = await asyncio.gather(*(value(text) for text in ("a", "b", "refuse me", "c", "d")), return_exceptions=True)
    return [result if isinstance(result, str) else type(result).__name__ for result in results]


@perdure.step(durability="ahead")
async def ahead(text: str) -> str:
    return text


@perdure.workflow
async def goes_on() -> list[str]:
    results: list[str] = []
    for text in ("a", "refuse me", "c"):
        try:
            results.append(await ahead(text))
        except perdure.CodecError:
            results.append("CodecError")
    return results


def refuse(engine: perdure.Engine) -> None:
    """Have the engine's store refuse every value that holds certain bytes."""
    store: Any = engine._store
    commit = store.commit

    def holds_it(write: Any) -> bool:
        return type(write) is Append and any(b"refuse me" in (event.payload or b"") for event in write.events)

    def refusing(batch: Sequence[Any], *, block: bool = True) -> Any:
        passing = [write for write in batch if not holds_it(write)]
        outcomes = iter(commit(passing, block=block) if passing else ())
        return [Failed(ValueError("no")) if holds_it(write) else next(outcomes) for write in batch]

    store.commit = refusing


async def test_a_body_that_went_on_with_a_value_that_is_refused_is_replayed(tmp_db: str) -> None:
    """It had the result of a step that is recorded ahead, and what came of it is void."""
    async with perdure.Engine(tmp_db, [goes_on], grace=0, poll="20ms") as engine:
        refuse(engine)
        run = await engine.start(goes_on)
        assert await run.result(timeout=30) == ["a", "CodecError", "c"]
        log = await run.history()
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        types = [event.type for event in log]
        assert types.count("step_failed") == 1
        assert types[types.index("step_failed") + 1] == "run_released"


async def test_only_the_value_that_is_refused_is_replaced(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [several], grace=0) as engine:
        refuse(engine)
        run = await engine.start(several)
        assert await run.result(timeout=30) == ["a", "b", "CodecError", "c", "d"]
        log = await run.history()
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert [event.type for event in log].count("step_failed") == 1
