"""Small promises about ownership and attempts, each by itself."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import perdure
from perdure.model.claim import count_deaths
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.status import EventType
from perdure.testing.faults import Fault
from tests.faults.lives import Mortal, Shelf

KEYS: list[str] = []
LATE = threading.Event()


@perdure.step(retry=perdure.Retry(attempts=3, initial=0.001, maximum=0.001))
async def remember() -> int:
    KEYS.append(perdure.step_info().key)
    if len(KEYS) < 3:
        raise ConnectionError
    return len(KEYS)


@perdure.step(retry=perdure.Retry(attempts=2, initial=0.001, maximum=0.001))
async def hopeless() -> None:
    KEYS.append("tried")
    raise ConnectionError


@perdure.workflow
async def persistent() -> int:
    return await remember()


@perdure.workflow
async def futile() -> None:
    await hopeless()


async def test_every_attempt_of_a_step_has_the_same_key(tmp_db: str) -> None:
    KEYS.clear()
    async with perdure.Engine(tmp_db, [persistent]) as engine:
        assert await engine.run(persistent) == 3
    assert len(KEYS) == 3
    assert len(set(KEYS)) == 1


async def test_a_step_is_tried_as_often_as_it_says(tmp_db: str) -> None:
    KEYS.clear()
    async with perdure.Engine(tmp_db, [futile]) as engine:
        run = await engine.start(futile)
        while await run.status() != "failed":
            await asyncio.sleep(0.005)
    assert KEYS == ["tried", "tried"]


async def test_a_run_whose_claim_was_never_answered_is_given_back_and_executed(tmp_path: Path) -> None:
    """The claim is recorded, its answer lost: the worker lives on and owns a run it knows nothing of."""
    KEYS.clear()
    store = Mortal(Shelf("sqlite", tmp_path / "test.db").store(), fault=Fault.ERROR_AFTER, only={"claim"})
    store.at = 0
    engine = perdure.Engine("memory://", [persistent], lease=0.6, poll=0.05)
    engine._store = store
    async with engine:
        run = await engine.start(persistent, delay=0.2)
        store.at, store.repeat = store.boundaries + 1, True
        while not [event for event in await run.history() if event.type == "run_claimed"]:
            await asyncio.sleep(0.005)
        store.at = 0
        assert await asyncio.wait_for(run.result(), 10) == 3
        types = [event.type for event in await run.history()]
    assert store.injected >= 1
    assert types.count("run_claimed") == 2
    assert "run_released" in types


def test_only_claims_that_recorded_nothing_and_were_not_handed_back_count_as_deaths() -> None:
    def deaths(*types: EventType) -> int:
        return count_deaths(seal("run", EMPTY_TAIL, [Draft(kind, 1) for kind in types], 1, 1))

    e = EventType
    assert deaths(e.RUN_STARTED, e.RUN_CLAIMED) == 1
    assert deaths(e.RUN_STARTED, e.RUN_CLAIMED, e.RUN_CLAIMED) == 2
    assert deaths(e.RUN_STARTED, e.RUN_CLAIMED, e.RUN_RELEASED) == 0
    assert deaths(e.RUN_STARTED, e.RUN_CLAIMED, e.RUN_CLAIMED, e.RUN_WAITING, e.RUN_CLAIMED) == 2
    assert deaths(e.RUN_STARTED, e.RUN_CLAIMED, e.STEP_COMPLETED, e.RUN_CLAIMED) == 1


@perdure.step(timeout=0.1)
def late() -> None:
    LATE.wait(5)
    perdure.step_info().heartbeat("still here")


@perdure.workflow
async def outlived() -> str:
    try:
        await late.aio()
    except perdure.StepTimedOut:
        LATE.set()
        await asyncio.sleep(0.3)
    return "gone on"


async def test_a_heartbeat_of_a_thread_that_has_timed_out_is_not_recorded(tmp_db: str) -> None:
    """Recorded after the answer it would make every replay diverge."""
    LATE.clear()
    async with perdure.Engine(tmp_db, [outlived], evict_after=0.05, hint=0.01, poll=0.05) as engine:
        run = await engine.start(outlived)
        assert await run.result() == "gone on"
        assert "step_heartbeat" not in [event.type for event in await run.history()]
