"""Upgrades that read a history in another way: steps under other names, and records that no longer count."""

from __future__ import annotations

import signal

import pytest

import perdure
from perdure.replay.verdict import VerdictKind as Kind
from tests.upgrade.deployment import OLD, STEPS, Application, begun, in_state, sound, until


async def test_steps_under_other_names_replay_so_ever_after(shop: Application) -> None:
    renamed = STEPS.replace("async def charge", "async def debit")
    body = OLD.replace("charge(", "debit(") + "\n"
    shop.version("1.3.0", OLD)
    new = shop.version("1.4.0", body, steps=renamed)
    newer = shop.version("1.5.0", body.replace("return [a, b]", "return [a, b, 'newer']"), steps=renamed)
    async with shop.client() as engine:
        await begun(shop, engine, "o-1", "o-2", "o-3", pause=8.0)
        plan = await engine.upgrades.plan(ids=["o-1", "o-2", "o-3"], to="1.4.0")
        assert {run.verdict.kind for run in plan.runs} == {Kind.DIVERGES}
        refused = await engine.upgrades.apply(plan, reason="renamed")
        assert {result.outcome for result in refused} == {"refused"}
        results = await engine.upgrades.apply(plan, reason="renamed", map={"charge": "debit"})
        assert [str(result) for result in results[:1]] == ["o-1: applied: 1.3.0 → 1.4.0: SAFE"]
        assert (await engine.check("o-1", to="1.4.0")).is_safe
        assert (await engine.check("o-1", to="1.3.0")).kind is Kind.DIVERGES
        await engine.upgrades.revert("o-2", reason="back")
        assert (await engine.check("o-2", to="1.3.0")).is_safe
        sound(shop)
        further = await engine.upgrades.plan(ids=["o-3"], to="1.5.0")
        await engine.upgrades.apply(further, reason="further")
        for folder in (new, newer, shop.tmp / "1.3.0"):
            shop.worker(folder)
        assert await engine.await_result("o-1") == ["charged tea", "shipped tea"]
        assert await engine.await_result("o-2") == ["charged tea", "shipped tea"]
        assert await engine.await_result("o-3") == ["charged tea", "shipped tea", "newer"]
        recorded = [event.name for event in await engine.get("o-1").history() if event.op == "0"]
        assert recorded == ["charge"]  # the log is what it was
    assert shop.lines().count("charge tea") == 3
    sound(shop)


async def test_what_is_recorded_from_a_step_on_is_dropped_and_done_again(shop: Application) -> None:
    body = (
        "await perdure.publish('stage', 'new')\na = await charge(item)\nb = await pack(item)\n"
        "await perdure.publish('stage', 'packed')\nawait perdure.sleep(pause)\nreturn [a, b]"
    )
    other = (
        "await perdure.publish('stage', 'new')\na = await charge(item)\nb = await fraud(item)\n"
        "await perdure.sleep(0.01)\nreturn [a, b]"
    )
    shop.version("1.3.0", body)
    new = shop.version("1.4.0", other)
    async with shop.client() as engine:
        worker = shop.worker(shop.tmp / "1.3.0")
        run = await engine.start("order", "tea", 3600.0, id="o-1", version="1.3.0")

        async def is_packed() -> bool:
            return bool(await run.value("stage") == "packed")

        await until(is_packed)
        worker.send(signal.SIGTERM)
        worker.finish()
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        assert plan.runs[0].verdict.kind is Kind.DIVERGES
        (nowhere,) = await engine.upgrades.apply(plan, reason="redo", from_step=9)
        assert (nowhere.outcome, "no operation '9'" in nowhere.text) == ("failed", True)
        (done,) = await engine.upgrades.apply(plan, reason="redo", from_step=2)
        assert done.outcome == "applied", str(done)
        assert await run.value("stage") == "new"
        sound(shop)
        shop.worker(new)
        assert await engine.await_result("o-1") == ["charged tea", "fine"]
    assert shop.lines() == ["charge tea", "pack tea", "fraud tea"]
    sound(shop)


async def test_a_failed_run_is_retried_as_the_other_version(shop: Application) -> None:
    broken = STEPS.replace('note(f"pack {item}")', "raise KeyError(item)").replace(
        "@perdure.step\nasync def pack", "@perdure.step(retry=perdure.Retry(attempts=1))\nasync def pack"
    )
    body = "a = await charge(item)\nreturn [a, await pack(item)]"
    old = shop.version("1.3.0", body, steps=broken)
    new = shop.version("1.4.0", body)
    async with shop.client() as engine:
        shop.worker(old)
        await engine.start("order", "tea", id="o-1", version="1.3.0")
        await in_state(engine, "o-1", "failed")
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        assert plan.runs[0].verdict.is_safe, str(plan.runs[0].verdict)
        (done,) = await engine.upgrades.apply(plan, reason="packs again")
        assert done.outcome == "applied", str(done)
        sound(shop)
        shop.worker(new)
        assert await engine.await_result("o-1") == ["charged tea", "packed tea"]
        with pytest.raises(perdure.UsageError, match="is completed; what has ended is not upgraded"):
            await engine.upgrades.plan(ids=["o-1"], to="1.3.0")
    assert shop.lines() == ["charge tea", "pack tea"]
    sound(shop)
