"""What becomes of runs whose version nobody can run: parked with the cause, and going on by themselves once it can."""

from __future__ import annotations

import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

from perdure import Engine, Run, Status
from perdure.api.health import health
from tests.deploys.place import Place, end, until, until_recorded
from tests.process import Spawner


def shop(label: str, head: str = "") -> str:
    """Return a shop whose run waits for a second between two steps."""
    return head + dedent(
        f"""
        import asyncio, os
        import perdure

        @perdure.step
        async def say() -> str:
            return "{label} " + str(os.getpid())

        @perdure.workflow(version="{label}")
        async def fulfil() -> list[str]:
            first = await say()
            await asyncio.sleep(1)
            return [first, await say()]
        """
    )


@pytest.fixture
def place(tmp_path: Path, tmp_db: str, spawn: Spawner) -> Place:
    return Place(tmp_path, tmp_db, spawn)


async def begun(engine: Engine, place: Place, text: str, **env: str) -> Run[object]:
    """Return a run that began on this code and waits; its worker is gone, and so is the source."""
    worker = await asyncio.to_thread(place.worker, "old", text, **env)
    run: Run[object] = await engine.start("fulfil", id="r")
    await until_recorded(run, "step_completed")
    await asyncio.to_thread(end, worker)
    place.forget("old")
    return run


async def test_without_hosts_a_run_of_another_version_is_parked_and_its_own_worker_takes_it_up(
    place: Place, tmp_db: str
) -> None:
    async with Engine(tmp_db, worker=False) as engine:
        run = await begun(engine, place, shop("1.0.0"))
        new = await asyncio.to_thread(place.worker, "new", shop("2.0.0"), "max_hosts=0")
        info = await until(run, Status.PARKED)
        assert info.detail == (
            "version: fulfil@1.0.0 could not be loaded: no worker was deployed with it, and max_hosts is 0. "
            "Its runs are parked. Fix the environment (perdure versions host-env), or upgrade them."
        )
        old = await asyncio.to_thread(place.worker, "old", shop("1.0.0"))
        await until(run, Status.COMPLETED)
        result = await run.result()
        assert {str(one).split()[0] for one in result} == {"1.0.0"}  # type: ignore[attr-defined]
        assert str(old.pid) in str(result)
        events = [event.type for event in await run.history()]
        assert events.count("run_parked") == events.count("run_unparked") == 1
        for worker in (new, old):
            await asyncio.to_thread(end, worker)


async def test_code_that_cannot_be_loaded_parks_its_runs_alone_and_they_go_on_once_it_can(
    place: Place, tmp_db: str
) -> None:
    needs = "import os\nQUEUE = os.environ['OLD_QUEUE_URL']\n"
    async with Engine(tmp_db, worker=False) as engine:
        run = await begun(engine, place, shop("1.0.0", needs), OLD_QUEUE_URL="x")
        worker = await asyncio.to_thread(place.worker, "new", shop("2.0.0"))
        info = await until(run, Status.PARKED)
        assert str(info.detail).startswith(
            "version: fulfil@1.0.0 could not be loaded: KeyError 'OLD_QUEUE_URL' in shop.py:2. Its runs are parked."
        )
        assert str((await engine.run("fulfil", id="new"))[0]).startswith("2.0.0")
        assert (await run.info()).status == Status.PARKED
        await asyncio.to_thread(end, worker)
        worker = await asyncio.to_thread(place.worker, "new", shop("2.0.0"), OLD_QUEUE_URL="x")
        await until(run, Status.COMPLETED)
        assert {str(one).split()[0] for one in await run.result()} == {"1.0.0"}  # type: ignore[attr-defined]
        await asyncio.to_thread(end, worker)


async def test_nobody_hosts_a_version_while_a_worker_that_has_it_lives(place: Place, tmp_db: str) -> None:
    async with Engine(tmp_db, worker=False) as engine:
        old = await asyncio.to_thread(place.worker, "old", shop("1.0.0"))
        runs = [await engine.start("fulfil", id=f"r{n}") for n in range(5)]
        new = await asyncio.to_thread(place.worker, "new", shop("2.0.0"))
        for run in runs:
            result = await run.result(timeout="20s")
            assert all(str(one) == f"1.0.0 {old.pid}" for one in result)
        assert len((await health(engine.connection)).workers) == 2
        for worker in (new, old):
            await asyncio.to_thread(end, worker)


STUCK = dedent(
    """
    import asyncio
    import perdure

    @perdure.step
    async def first() -> int:
        return 1

    @perdure.workflow(version="1.0.0")
    async def fulfil() -> int:
        found = await first()
        await asyncio.Event().wait()
        return found
    """
)


async def test_a_run_whose_own_code_is_wrong_says_what_helps_and_that_helps(place: Place, tmp_db: str) -> None:
    async with Engine(tmp_db, worker=False) as engine:
        run = await begun(engine, place, STUCK)
        info = await until(run, Status.PARKED)
        assert str(info.detail).startswith("the body waits for something that can never happen")
        [told] = [event.detail["help"] for event in await run.history() if event.type == "run_parked"]
        assert told == "mend the code in a new version, then perdure upgrade plan --id r --to VERSION"
        mended = STUCK.replace("    await asyncio.Event().wait()\n", "").replace("1.0.0", "1.0.1")
        worker = await asyncio.to_thread(place.worker, "new", mended)
        plan = await engine.upgrades.plan(ids=["r"], to="1.0.1")
        await engine.upgrades.apply(plan, reason="it waits for ever")
        await until(run, Status.COMPLETED)
        assert await run.result() == 1
        await asyncio.to_thread(end, worker)
