"""While the database has little to do, a body goes on with a result that is just being recorded; nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import perdure
from perdure.model.write import Append, Conflict, Failed

SEEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


@perdure.step
async def at_once(name: str) -> str:
    SEEN.append(f"step {name}")
    return name


@perdure.step
async def after_a_while(name: str) -> str:
    await asyncio.sleep(0.01)
    SEEN.append(f"step {name}")
    return name


@perdure.step(durability="ahead")
async def ahead(name: str) -> str:
    SEEN.append(f"step {name}")
    return name


@perdure.step(durability="none")
async def unrecorded(name: str) -> str:
    SEEN.append(f"step {name}")
    return name


STEPS: dict[str, Any] = {"strict": at_once, "ahead": ahead, "none": unrecorded}


@perdure.workflow
async def one(slowly: bool) -> str:
    return await (after_a_while if slowly else at_once)("a")


@perdure.workflow
async def two(slowly: bool, second: str) -> str:
    first = await (after_a_while if slowly else at_once)("a")
    SEEN.append("body")
    return f"{first}{await STEPS[second]('b')}"


@perdure.workflow
async def naps() -> str:
    first = await at_once("a")
    await asyncio.sleep(0.01)
    return first


@perdure.workflow
def on_a_thread() -> str:
    return at_once.blocking("a") + at_once.blocking("b")


@perdure.workflow
async def catches(slowly: bool) -> str:
    try:
        return await (after_a_while if slowly else at_once)("refuse me")
    except perdure.CodecError as error:
        return f"refused: {error}"


WORKFLOWS: list[Any] = [one, two, naps, on_a_thread, catches]


class Watched:
    """The store of an engine, whose commits can be watched and answered otherwise."""

    def __init__(self, engine: perdure.Engine) -> None:
        store: Any = engine._store
        self.commits: list[list[str]] = []
        self.before: Callable[[Sequence[Any]], Any] = lambda _batch: None
        self._commit = store.commit
        store.commit = self.commit

    def commit(self, batch: Sequence[Any], *, block: bool = True) -> Any:
        answer = self.before(batch)
        if answer is not None:
            return answer
        outcomes = self._commit(batch, block=block)
        if outcomes is not None:
            self.commits.append([event.type for write in batch for event in write.events])
            SEEN.extend("commit" for write in batch if any(event.type == "step_completed" for event in write.events))
        return outcomes


@pytest.mark.parametrize("slowly", [False, True])
async def test_a_run_of_one_step_by_itself_is_two_transactions(tmp_db: str, slowly: bool) -> None:
    async with perdure.Engine(tmp_db, WORKFLOWS) as engine:
        watched = Watched(engine)
        assert await engine.run(one, slowly) == "a"
        assert watched.commits == [["run_started", "run_claimed"], ["step_completed", "run_completed"]]


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("second", STEPS)
async def test_nothing_begins_before_the_result_is_recorded(tmp_db: str, slowly: bool, second: str) -> None:
    async with perdure.Engine(tmp_db, WORKFLOWS) as engine:
        Watched(engine)
        assert await engine.run(two, slowly, second) == "ab"
    assert SEEN[:4] == ["step a", "body", "commit", "step b"]


async def test_a_body_on_a_thread_and_a_timer_go_on_as_well(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, WORKFLOWS) as engine:
        assert await engine.run(on_a_thread) == "ab"
        assert await engine.run(naps) == "a"


async def test_runs_that_share_transactions_wait_for_them(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, WORKFLOWS) as engine:
        watched = Watched(engine)
        await asyncio.gather(*(engine.run(one, slowly=False) for _ in range(20)))
    largest = max(watched.commits, key=lambda batch: batch.count("step_completed"))
    assert largest.count("step_completed") > 2
    assert "run_completed" not in largest


@pytest.mark.parametrize("slowly", [False, True])
async def test_a_body_that_went_on_with_what_was_refused_is_dropped(
    tmp_db: str, slowly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log has moved on: the run is another worker's, and nothing of it is told."""
    async with perdure.Engine(tmp_db, WORKFLOWS, grace=0) as engine:
        watched = Watched(engine)

        def moved_on(batch: Sequence[Any]) -> Any:
            if any(type(write) is Append and write.events[0].type == "step_completed" for write in batch):
                return [Conflict(9) for _ in batch]
            return None

        watched.before = moved_on
        run = await engine.start(one, slowly, id="r")
        async with asyncio.timeout(40):
            while "its log has moved on" not in caplog.text:
                await asyncio.sleep(0.01)
        watched.before = lambda _batch: None
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.2)
        assert [event.type for event in await run.history()] == ["run_started", "run_claimed"]


@pytest.mark.parametrize("slowly", [False, True])
async def test_a_body_that_went_on_with_what_cannot_be_stored_is_replayed(tmp_db: str, slowly: bool) -> None:
    async with perdure.Engine(tmp_db, WORKFLOWS, grace=0, poll="20ms") as engine:
        watched = Watched(engine)

        def refusing(batch: Sequence[Any]) -> Any:
            if any(event.type == "step_completed" for write in batch for event in write.events):
                return [Failed(ValueError("too odd")) for _ in batch]
            return None

        watched.before = refusing
        run = await engine.start(catches, slowly)
        assert (await run.result(timeout=40)).startswith("refused: the database refuses the value: too odd")
        log = await run.history()
        assert [event.type for event in log] == [
            "run_started", "run_claimed", "step_failed", "run_released", "run_claimed", "run_completed",
        ]  # fmt: skip
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
