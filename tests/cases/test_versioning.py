"""Real complaints about changed code, for runs that are bound to no version. With binding: `test_bound`."""

from __future__ import annotations

import asyncio
import random
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure import RunFailed, RunParked, Status, step, workflow
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World
from tests.cases.ledger import note, until


@step
async def take_a() -> str:
    note()
    return "a"


@step
async def take_b() -> str:
    note()
    return "b"


@step
async def use(a: str, b: str) -> str:
    note()
    return a + b


@step
async def say(word: str) -> str:
    note(value=word)
    return word


async def original() -> str:
    a = await take_a()
    b = await take_b()
    await asyncio.sleep(0.5)
    return await use(a, b)


async def reordered() -> str:
    b = await take_b()
    a = await take_a()
    await asyncio.sleep(0.5)
    return await use(a, b)


async def one_way() -> str:
    first = await say("x")
    second = await say("y")
    await asyncio.sleep(0.5)
    return await use(first, second)


async def other_way() -> str:
    second = await say("y")
    first = await say("x")
    await asyncio.sleep(0.5)
    return await use(first, second)


def named(function: Any, name: str = "flow") -> perdure.Workflow[Any, Any]:
    return workflow(name=name, unversioned=True)(function)


async def until_waiting(world: World, run_id: str) -> None:
    await until(lambda: world.rows("select status from run where id = ?", run_id) == [("waiting",)], what="it waits")


async def begun(world: World, code: Any) -> None:
    """Run the old code up to its wait."""
    async with world.engine([named(code)], evict_after="20ms") as engine:
        await engine.start("flow", id="r")
        await until_waiting(world, "r")


async def changed_bystander() -> str:
    return "another build"


async def test_case_ver_01(world: World) -> None:
    """Editing any workflow strands every run in flight, because the version is a hash over all code.

    (With a timer in place of the signal.) A run waits under build 1; in build 2 only
    another workflow has changed; the run goes on. Source: dbos-inc/dbos-transact-golang#174, czpython/druks PR#632,
    dbos-inc/dbos-transact-ts PR#765.
    """
    async with world.engine([named(original), named(other_way, "bystander")], evict_after="20ms") as engine:
        await engine.start("flow", id="r")
        await until_waiting(world, "r")
    async with world.engine([named(original), named(changed_bystander, "bystander")]) as engine:
        assert await engine.get("r").result(timeout=30) == "ab"
    assert world.ledger.count("take_a") == world.ledger.count("take_b") == 1


async def test_case_ver_03(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Reordered steps: the replay takes one step's value for the other, or hangs without a message.

    Two different steps swapped: parked as diverged with both sides named, nothing further runs.
    Source: Azure/azure-functions-durable-js#122, dbos-inc/dbos-transact-py PR#284.
    """
    await begun(world, original)
    async with world.engine([named(reordered)]) as engine:
        with pytest.raises(RunParked, match=r"take_a.*take_b"):
            await engine.get("r").result(timeout=30)
        assert await engine.get("r").status() == Status.PARKED
    assert world.ledger.count("use") == 0
    assert world.ledger.count() == 2


async def test_case_ver_03_same_step(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Two calls of one step with swapped arguments: the recorded results are used, and a warning says so."""
    await begun(world, one_way)
    async with world.engine([named(other_way)]) as engine:
        assert await engine.get("r").result(timeout=30) == "yx"
    assert "was recorded with other arguments" in caplog.text
    assert [entry.value for entry in world.ledger.entries("say")] == ["x", "y"]


@everywhere
async def test_case_ver_07(world: World) -> None:
    """During a rolling deploy an old worker takes the new task, says it is unregistered and throws it away.

    A worker without the function is the only one for a while; the one that has it runs all three, once each.
    Source: celery/celery#8165, celery/celery#6485, SuperCoopBerlin/tapir PR#485.
    """
    async with world.engine([flows.two_steps], name="old") as old, world.client([]) as client:
        runs: list[perdure.Run[Any]] = [await client.start("trivial", n=n) for n in range(3)]
        assert await old.run(flows.two_steps) == ["one", "two"]
        await asyncio.sleep(0.5)
        assert [await run.status() for run in runs] == [Status.PENDING] * 3
        async with world.engine([flows.trivial], name="new"):
            assert [await run.result(timeout=30) for run in runs] == [0, 1, 2]
    assert set(world.ledger.counts("last").values()) == {1}


async def test_case_ver_09(world: World) -> None:
    """Renaming a function orphans its runs, because the name is the key.

    With a stable name the run goes on; without one it waits for code of its name: neither failed nor lost, and listed.
    (That `doctor` reports it is tested with the commands.) Source: czpython/druks PR#632.
    """
    async with world.engine([named(original), named(original, "old_name")], evict_after="20ms") as engine:
        for name in ("flow", "old_name"):
            await engine.start(name, id=name)
            await until_waiting(world, name)
    moved = original
    async with world.engine([named(moved), named(moved, "new_name")]) as engine:
        assert await engine.get("flow").result(timeout=30) == "ab"
        await asyncio.sleep(0.6)
        assert [(info.id, info.status) async for info in engine.list(workflow="old_name")] == [("old_name", "waiting")]
    async with world.engine([named(moved, "old_name")]) as engine:
        assert await engine.get("old_name").result(timeout=30) == "ab"
    assert set(world.ledger.counts("take_a").values()) == {1}


async def bad_third() -> list[str]:
    return [await flows.first(), await flows.second(), await broken()]


@step(name="third")
async def broken() -> str:
    note("third")
    raise RuntimeError("a bug")


async def good_third() -> list[str]:
    return [await flows.first(), await flows.second(), await flows.third()]


async def test_case_ver_10(world: World) -> None:
    """A stuck run cannot be moved to fixed code without repeating what succeeded.

    The third step fails for good; with fixed code, `retry` ends the run without repeating steps 1 and 2; the command is
    in the history. Source: restatedev/restate#3817, #3144.
    """
    async with world.engine([named(bad_third)]) as engine:
        run: perdure.Run[Any] = await engine.start("flow", id="r")
        with pytest.raises(RunFailed, match="a bug"):
            await run.result(timeout=30)
    async with world.engine([named(good_third)]) as engine:
        told = await engine.retry("r", reason="fixed in 1.2", actor="ann")
        assert "third" in told
        assert await engine.get("r").result(timeout=30) == ["one", "two", "three"]
        reopened = [event for event in await engine.get("r").history() if event.type == "run_reopened"]
        assert [(event.detail["actor"], event.detail["reason"]) for event in reopened] == [("ann", "fixed in 1.2")]
    assert world.ledger.count("first") == world.ledger.count("second") == 1
    assert world.ledger.count("third") == 2


@step
async def go_x() -> None:
    note()


@step
async def go_y() -> None:
    note()


@step
async def go_z(ident: str, at: str) -> None:
    note(value=[ident, at])
    await asyncio.sleep(0.3)


@workflow
async def with_helpers() -> None:
    await (go_x() if perdure.random() < 0.5 else go_y())
    await asyncio.sleep(0.6)
    await go_z(str(perdure.uuid4()), perdure.now().isoformat())


@workflow
async def with_modules() -> None:
    await (go_x() if random.random() < 0.5 else go_y())
    await asyncio.sleep(0.6)
    await go_z(str(uuid.uuid4()), datetime.now(UTC).isoformat())


@pytest.mark.parametrize("runs", [12, pytest.param(50, marks=[pytest.mark.nightly])])
async def test_case_ver_13(world: World, runs: int) -> None:
    """Clock, random and uuid are read in the body: a replay draws other values, takes the other branch, or hangs.

    Killed and recovered during the wait and during the last step. With the engine's own functions: success, one branch,
    one id. With the plain modules: the same, or a mismatch that names the step; never both branches.
    Source: Azure/azure-functions-durable-js#122, temporalio/sdk-python#429.
    """
    module = "tests.cases.test_versioning"
    async with world.client([with_helpers, with_modules]) as client:
        own = [await client.start(with_helpers, id=f"own{n}") for n in range(runs)]
        plain = [await client.start(with_modules, id=f"plain{n}") for n in range(runs)]
        branch = "select count(*) from event where type = 'step_completed' and name in ('go_x', 'go_y')"
        child = world.worker("during the wait", modules=[module])
        await until(lambda: world.rows(branch) == [(2 * runs,)], what="every branch is recorded")
        child.destroy()
        child = world.worker("during z", modules=[module])
        await world.ledger.until("go_z")
        child.destroy()
        world.worker("last", modules=[module])
        for run in own:
            await run.result(timeout=30)
        for run in plain:
            [outcome] = await asyncio.gather(run.result(timeout=30), return_exceptions=True)
            assert outcome is None or (isinstance(outcome, RunParked) and "go_x" in outcome.reason)
    for run in (*own, *plain):
        assert len({entry.step for entry in world.ledger.entries(run=run.id)} & {"go_x", "go_y"}) == 1
    for run in own:
        assert len({tuple(entry.value) for entry in world.ledger.entries("go_z", run.id)}) == 1  # type: ignore[arg-type]
