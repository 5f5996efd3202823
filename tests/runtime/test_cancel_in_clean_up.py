"""A cancel that comes in while clean-up begins does not skip it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import perdure

released: list[str] = []
cleaning = threading.Event()


@perdure.step
async def work() -> None:
    await asyncio.sleep(0.1)


@perdure.step
async def release() -> None:
    released.append("begun")


@perdure.workflow
async def tidy() -> None:
    try:
        await work()
    finally:
        cleaning.set()
        await release()


async def test_what_was_asked_for_before_the_cancel_came_in_has_begun(tmp_db: str) -> None:
    released.clear()
    cleaning.clear()
    async with perdure.Engine(tmp_db, [tidy]) as engine:
        store: Any = engine._store
        inbox = store.inbox

        def slowly(run_id: str) -> Any:
            messages = inbox(run_id)
            cleaning.wait(5)  # on the reading thread: the step ends meanwhile, and the body goes on to its clean-up
            return messages

        store.inbox = slowly
        run = await engine.start(tidy)
        await run.cancel()
        with pytest.raises(perdure.RunCancelled):
            await run.result(timeout=30)
        names = [event.name for event in await run.history() if event.type == "step_completed"]
    assert names[:1] == ["work"]
    assert released == ["begun"]
