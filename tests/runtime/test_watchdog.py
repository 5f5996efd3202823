"""Code that blocks the event loop is named in a warning, once, while it does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.runtime.watchdog import Watchdog

RELEASE = threading.Event()


@perdure.step
async def careless() -> None:
    RELEASE.wait(10)


@perdure.workflow
async def calls_careless() -> None:
    await careless()


@perdure.workflow
async def careless_body() -> None:
    RELEASE.wait(10)


@pytest.mark.parametrize(
    "flow,named", [(calls_careless, "async step 'careless' of run 'r'"), (careless_body, "the body of run 'r'")]
)
async def test_what_blocks_the_loop_is_named(
    tmp_db: str, caplog: pytest.LogCaptureFixture, flow: Any, named: str
) -> None:
    RELEASE.clear()

    def release() -> None:
        deadline = time.monotonic() + 8
        while "blocks the event loop" not in caplog.text and time.monotonic() < deadline:
            RELEASE.wait(0.01)
        RELEASE.set()

    thread = threading.Thread(target=release)
    async with perdure.Engine(tmp_db, [calls_careless, careless_body], lease="900ms", poll="200ms") as engine:
        run = await engine.start(flow, id="r", delay="10ms")
        thread.start()
        await run.result(timeout=30)
    thread.join()
    lines = [record.getMessage() for record in caplog.records if "blocks the event loop" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(named)
    assert "test_watchdog.py" in lines[0] or "threading.py" in lines[0]


def each(call: Callable[[], None], times: int) -> None:
    for _ in range(times):
        call()


async def test_other_code_is_named_by_its_place(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog(asyncio.get_running_loop())
    thread = threading.Thread(target=lambda: each(dog.look, 3))
    thread.start()
    thread.join()  # blocks the loop
    await asyncio.sleep(0)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["code outside any run"]
    thread = threading.Thread(target=dog.look)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    assert len(caplog.records) == 1
