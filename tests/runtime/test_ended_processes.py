"""What the end of a loop or of a process does to runs that were executing: nothing that would be taken for a result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from perdure import Engine, RunParked, Status, UsageError, step, workflow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process import Spawner

FLOWS = """
import asyncio, os, sys, time
import perdure

@perdure.step
async def pause(seconds: float) -> float:
    print("begun", flush=True)
    await asyncio.sleep(seconds)
    return seconds

@perdure.workflow(unversioned=True)
async def pausing(seconds: float) -> float:
    return await pause(seconds)

"""
NEVER_CLOSED = """
async def main():
    engine = await perdure.Engine(sys.argv[1], [pausing]).open()
    await engine.start(pausing, 30.0, id="p")
    await asyncio.sleep(0.2)

asyncio.run(main())
time.sleep(0.5)
"""
FORKED = """
with perdure.SyncEngine(sys.argv[1], [pausing]) as engine:
    engine.run(pausing, 0.0)
    child = os.fork()
    if not child:
        try:
            engine.start(pausing, 0.0)
        except perdure.UsageError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent:", engine.run(pausing, 0.0), flush=True)
"""


async def test_a_loop_that_ends_under_the_engine_fails_no_run(tmp_path: Path, spawn: Spawner) -> None:
    url = f"sqlite:///{tmp_path}/e.db"
    spawn.python(FLOWS + NEVER_CLOSED, url).finish()
    async with Engine(url, worker=False) as client:
        assert await client.get("p").status() in {Status.RUNNING, Status.PENDING}
        assert "step_failed" not in {event.type for event in await client.get("p").history()}


def test_a_sync_engine_refuses_use_in_a_forked_child(tmp_path: Path, spawn: Spawner) -> None:
    done = spawn.python(FLOWS + FORKED, f"sqlite:///{tmp_path}/e.db").finish()
    assert "opened before a fork" in done.out
    assert "parent: 0.0" in done.out


@step
async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@workflow
async def cancelling() -> None:
    await cancels_itself()


async def test_a_step_that_cancels_its_own_task_each_time_parks_its_run(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path}/e.db", [cancelling], poll="50ms", hint="10ms") as engine:
        with pytest.raises(RunParked, match="CancelledError in step 'cancels_itself'"):
            await engine.run(cancelling)


def test_an_engine_is_closed_on_the_loop_it_was_opened_on(tmp_path: Path) -> None:
    async def close_elsewhere(engine: Engine) -> None:
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, engine.close())

    async def main() -> None:
        async with Engine(f"sqlite:///{tmp_path}/e.db", worker=False) as engine:
            await close_elsewhere(engine)

    asyncio.run(main())
