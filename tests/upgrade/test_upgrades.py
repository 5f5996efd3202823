"""Upgrades of runs by plan: real workers on old and new code, runs inside steps, and what may go wrong in between."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.model.status import EventType
from perdure.replay.verdict import VerdictKind as Kind
from tests.upgrade.deployment import OLD, STEPS, Application, begun, in_state, sound, until

NEW = """
a = await charge(item)
c = await pack(item)
await perdure.sleep(0.01)
return [a, c]
"""
APPENDED = OLD.replace("return [a, b]", "return [a, b, await fraud(item)]")
INSERTED = "\nawait fraud(item)" + OLD
HOLDS = """
a = await charge(item)
b = await held(item)
c = await ship(item)
return [a, b, c]
"""
HOLDS_MORE = HOLDS.replace("return [a, b, c]", "return [a, b, c, await fraud(item)]")


async def asked_to_yield(engine: perdure.Engine, run_id: str) -> bool:
    return any(event.type == EventType.YIELD_REQUESTED for event in await engine.get(run_id).history())


async def bound(engine: perdure.Engine, run_id: str) -> str:
    return (await engine.get(run_id).info()).version


async def test_a_waiting_run_goes_on_as_the_other_version_and_says_so_in_its_log(shop: Application) -> None:
    shop.version("1.3.0", OLD)
    new = shop.version("1.4.0", APPENDED)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", pause=6.0)
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0", actor="ana")
        assert [(run.run_id, run.verdict.kind, run.state) for run in plan.runs] == [("o-1", Kind.SAFE, "planned")]
        (result,) = await engine.upgrades.apply(plan, reason="fraud check", actor="ana")
        assert (result.outcome, str(result)) == ("applied", "o-1: applied: 1.3.0 → 1.4.0: SAFE")
        assert await bound(engine, "o-1") == "1.4.0"
        sound(shop)
        shop.worker(new)
        assert await engine.await_result("o-1") == ["charged tea", "shipped tea", "fine"]
        upgraded = next(event for event in await engine.get("o-1").history() if event.type == EventType.RUN_UPGRADED)
        facts = upgraded.detail
        assert (facts["from"], facts["to"], facts["plan"], facts["actor"], facts["reason"], facts["forced"]) == (
            "1.3.0", "1.4.0", plan.id, "ana", "fraud check", False
        )  # fmt: skip
        assert shop.lines() == ["charge tea", "ship tea", "fraud tea"]
        assert (await engine.upgrades.status(plan)).runs[0].state == "applied"
    sound(shop)


async def test_44_a_worker_frozen_inside_a_step_is_refused_after_the_upgrade(shop: Application) -> None:
    old, new = shop.version("1.3.0", HOLDS), shop.version("1.4.0", HOLDS_MORE)
    async with shop.client() as engine:
        frozen = shop.worker(old, lease="6s")
        await engine.start("order", "tea", id="o-1", version="1.3.0")
        await until(lambda: "held tea" in shop.lines())
        frozen.send(signal.SIGSTOP)
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (busy,) = await engine.upgrades.apply(plan, reason="fraud check", wait="50ms")
        assert busy.outcome == "busy"
        assert isinstance(busy.error, perdure.UpgradeBusy)
        assert busy.text.startswith("o-1 is inside a step until its lease ends (")
        assert busy.text.endswith("); not upgraded.")
        (done,) = await engine.upgrades.apply(plan, reason="fraud check", wait="15s")
        assert done.outcome == "applied", str(done)
        sound(shop)
        shop.gate.touch()
        frozen.send(signal.SIGCONT)  # it ends its step now, and would record it
        shop.worker(new)
        result = await engine.await_result("o-1")
        assert result == ["charged tea", "let go tea", "shipped tea", "fine"]
        history = await engine.get("o-1").history()
        seq = next(event.seq for event in history if event.type == EventType.RUN_UPGRADED)
        later = {event.version for event in history if event.seq > seq and event.type == EventType.STEP_COMPLETED}
        assert later == {"1.4.0"}
        assert not [event for event in history if event.seq < seq and event.name == "held"]
    assert shop.lines().count("held tea") == 2
    assert shop.lines().count("ship tea") == 1
    sound(shop)


async def test_44_a_worker_inside_a_slow_step_is_waited_for_and_hands_the_run_over(shop: Application) -> None:
    old, new = shop.version("1.3.0", HOLDS), shop.version("1.4.0", HOLDS_MORE)
    async with shop.client() as engine:
        shop.worker(old)
        await engine.start("order", "tea", id="o-1", version="1.3.0")
        await until(lambda: "held tea" in shop.lines())
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (busy,) = await engine.upgrades.apply(plan, reason="fraud check", wait="100ms")
        assert busy.outcome == "busy"
        assert await bound(engine, "o-1") == "1.3.0"
        await until(partial(asked_to_yield, engine, "o-1"))
        shop.gate.touch()
        (done,) = await engine.upgrades.apply(plan, reason="fraud check", wait="15s")
        assert done.outcome == "applied", str(done)
        shop.worker(new)
        assert await engine.await_result("o-1") == ["charged tea", "let go tea", "shipped tea", "fine"]
    assert shop.lines().count("held tea") == 1
    sound(shop)


async def test_a_running_run_yields_between_two_steps(shop: Application) -> None:
    steps = "\n".join(f"await ship(str({n}))\nawait perdure.sleep(0.03)" for n in range(400))
    old, new = shop.version("1.3.0", steps), shop.version("1.4.0", steps + "\nreturn await fraud(item)")
    async with shop.client() as engine:
        shop.worker(old)
        await engine.start("order", "tea", id="o-1", version="1.3.0")
        await until(lambda: len(shop.lines()) > 3)
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (done,) = await engine.upgrades.apply(plan, reason="fraud check", wait="15s")
        assert done.outcome == "applied", str(done)
        assert isinstance(done.error, perdure.UpgradeStale) or done.error is None
        before = len(shop.lines())
        shop.worker(new)
        await until(lambda: len(shop.lines()) > before + 3)
        lines = shop.lines()
        assert lines == [f"ship {n}" for n in range(len(lines))]
        await engine.cancel("o-1")
        await in_state(engine, "o-1", "cancelled")
    sound(shop)


async def test_45_a_run_that_moved_on_since_the_plan_is_checked_again(shop: Application) -> None:
    old = shop.version("1.3.0", OLD)
    shop.version("1.4.0", NEW)
    shop.version("1.5.0", APPENDED)
    async with shop.client() as engine:
        for run_id in ("o-1", "o-2"):
            await engine.start("order", "tea", 3600.0, id=run_id, version="1.3.0")
        bad = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        good = await engine.upgrades.plan(ids=["o-2"], to="1.5.0")
        assert {run.verdict.kind for run in (*bad.runs, *good.runs)} == {Kind.SAFE}  # nothing is recorded yet
        worker = shop.worker(old)
        await until(lambda: len(shop.lines()) == 2)
        worker.send(signal.SIGTERM)
        worker.finish()
        (applied,) = await engine.upgrades.apply(good, reason="later")
        assert applied.outcome == "applied"
        assert isinstance(applied.error, perdure.UpgradeStale)
        assert str(applied.error) == "o-2 moved on since the plan (0 → 1 operations); checked again."
        (again,) = await engine.upgrades.apply(bad, reason="later")
        assert again.outcome == "applied"  # a timer that has not fired is no record
    sound(shop)


async def test_45_what_does_not_fit_any_more_is_refused(shop: Application) -> None:
    shop.version("1.3.0", OLD)
    shop.version("1.4.0", INSERTED)
    async with shop.client() as engine:
        await engine.start("order", "tea", 3600.0, id="o-1", version="1.3.0")
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        assert plan.runs[0].verdict.is_safe
        worker = shop.worker(shop.tmp / "1.3.0")
        await until(lambda: shop.lines() == ["charge tea"])
        worker.send(signal.SIGTERM)
        worker.finish()
        (result,) = await engine.upgrades.apply(plan, reason="later")
        assert result.outcome == "refused"
        assert result.verdict is not None
        assert result.verdict.kind is Kind.DIVERGES
        assert result.text.startswith("o-1 moved on since the plan (0 → 1 operations); checked again. o-1 (order): DIV")
        assert await bound(engine, "o-1") == "1.3.0"
    sound(shop)


async def test_48_what_fails_for_one_leaves_the_rest_alone_and_a_second_time_does_nothing(shop: Application) -> None:
    shop.version("1.3.0", OLD)
    shop.version("1.4.0", APPENDED)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", "o-2", "o-3")
        plan = await engine.upgrades.plan(workflow="order", from_version="1.3.0", to="1.4.0", limit=10)
        assert sorted(run.run_id for run in plan.runs) == ["o-1", "o-2", "o-3"]
        other = await engine.upgrades.plan(ids=["o-2"], to="1.4.0")
        await engine.upgrades.apply(other, reason="sooner")
        results = {result.run_id: result for result in await engine.upgrades.apply(plan, reason="fraud check")}
        assert [results[name].outcome for name in ("o-1", "o-2", "o-3")] == ["applied", "failed", "applied"]
        assert isinstance(results["o-2"].error, perdure.BindingGuard)
        assert str(results["o-2"].error) == (
            "run o-2 is bound to order@1.4.0; the binding changes only through an upgrade."
        )
        events = [len(await engine.get(name).history()) for name in ("o-1", "o-2", "o-3")]
        again = await engine.upgrades.apply(plan.id, reason="again")
        assert [result.outcome for result in again if result.run_id != "o-2"] == ["done", "done"]
        assert [len(await engine.get(name).history()) for name in ("o-1", "o-2", "o-3")] == events
    sound(shop)


async def test_49_a_revert_is_possible_until_something_is_recorded(shop: Application) -> None:
    old, new = shop.version("1.3.0", OLD), shop.version("1.4.0", APPENDED)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", "o-2", pause=4.0)
        plan = await engine.upgrades.plan(ids=["o-1", "o-2"], to="1.4.0")
        await engine.upgrades.apply(plan, reason="fraud check")
        back = await engine.upgrades.revert("o-1", reason="a mistake", actor="ben")
        assert str(back) == "o-1: applied: 1.4.0 → 1.3.0 (reverted)"
        assert await bound(engine, "o-1") == "1.3.0"
        states = {run.run_id: run.state for run in (await engine.upgrades.status(plan)).runs}
        assert states == {"o-1": "reverted", "o-2": "applied"}
        with pytest.raises(perdure.UsageError, match="no upgrade that could be reverted"):
            await engine.upgrades.revert("o-1", reason="twice")
        sound(shop)
        shop.worker(new)
        assert await engine.await_result("o-2") == ["charged tea", "shipped tea", "fine"]
        with pytest.raises(perdure.UpgradeRefused, match=r"o-2 has recorded 3 operations since .* to 1\.4\.0"):
            await engine.upgrades.revert("o-2", reason="too late")
        shop.worker(old)
        assert await engine.await_result("o-1") == ["charged tea", "shipped tea"]
    sound(shop)


async def test_50_there_is_no_plan_for_all_and_force_names_each(shop: Application) -> None:
    shop.version("1.3.0", OLD)
    shop.version("1.4.0", INSERTED)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", "o-2")
        selectors: list[dict[str, Any]] = [
            {}, {"workflow": "order"}, {"from_version": "1.3.0"}, {"ids": []}, {"status": "waiting"},
            {"ids": ["o-1"], "workflow": "order"},
        ]  # fmt: skip
        for selector in selectors:
            with pytest.raises(perdure.UsageError):
                await engine.upgrades.plan(to="1.4.0", **selector)
        plan = await engine.upgrades.plan(ids=["o-1", "o-2"], to="1.4.0")
        with pytest.raises(perdure.UsageError, match="has no run 'o-9'"):
            await engine.upgrades.apply(plan, reason="must be", force=["o-9"])
        with pytest.raises(perdure.InvalidValue, match="needs a reason"):
            await engine.upgrades.apply(plan, reason=" ")
        results = await engine.upgrades.apply(plan, reason="must be", force=["o-2"])
        assert [result.outcome for result in results] == ["refused", "applied"]
        assert isinstance(results[0].error, perdure.UpgradeRefused)
        assert await bound(engine, "o-1") == "1.3.0"
        detail = (await engine.get("o-2").history())[-1].detail
        assert detail["forced"] is True
        shop.worker(shop.tmp / "1.4.0")
        await in_state(engine, "o-2", "parked")  # not failed
        info = await engine.get("o-2").info()
        assert info.detail is not None
        assert info.detail.startswith(
            "diverged: run o-2 on order@1.4.0: operation 0 recorded step charge, the code asked for step fraud"
        )
        await engine.upgrades.revert("o-2", reason="it does not fit")
        assert await bound(engine, "o-2") == "1.3.0"
    sound(shop)


async def test_a_target_that_cannot_be_loaded_later_parks_its_runs_and_they_can_go_back(
    shop: Application, tmp_path: Path
) -> None:
    steps = "import os\nos.environ['NEEDED']\n" + STEPS
    shop.version("1.3.0", OLD)
    shop.version("1.4.0", APPENDED, steps=steps)
    current = shop.version("1.5.0", OLD)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", pause=1.0)
        with pytest.raises(perdure.VersionLoadFailed, match=r"order@1\.4\.0 could not be loaded: KeyError"):
            await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NEEDED", "here")
            plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
            await engine.upgrades.apply(plan, reason="fraud check")
        shop.worker(current)
        await in_state(engine, "o-1", "parked")
        await engine.upgrades.revert("o-1", reason="it does not load")
        assert await engine.await_result("o-1") == ["charged tea", "shipped tea"]
    sound(shop)


async def test_a_delayed_run_keeps_its_time_and_begins_on_the_other_version(shop: Application) -> None:
    shop.version("1.3.0", OLD)
    shop.version("1.4.0", NEW)
    async with shop.client() as engine:
        await engine.start("order", "tea", id="o-1", version="1.3.0", delay="1h")
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (done,) = await engine.upgrades.apply(plan, reason="before it begins")
        assert done.outcome == "applied"
        row = await engine.connection.read(engine.connection.store.get, "o-1")
        assert row.wake_at > engine.connection.store.now() + 3_000_000_000
    sound(shop)
