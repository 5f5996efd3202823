"""Forks: new runs that begin with what another one has recorded."""

from __future__ import annotations

import asyncio
import signal

import pytest

import perdure
from perdure.model.status import EventType
from tests.upgrade.deployment import STEPS, Application, in_state, sound, until

BODY = "a = await charge(item)\nb = await pack(item)\nc = await ship(item)\nreturn [a, b, c]"


async def test_a_run_is_started_again_from_a_step_under_an_id_of_its_own(shop: Application) -> None:
    folder = shop.version("1.3.0", BODY)
    async with shop.client() as engine:
        shop.worker(folder)
        first = await engine.start("order", "tea", id="o-1", tags={"customer": "7"}, queue="default", priority=3)
        assert await first.result() == ["charged tea", "packed tea", "shipped tea"]
        fork = await engine.fork("o-1", id="o-1-again", from_step=1, actor="ana", reason="packed wrongly")
        assert await fork.result() == ["charged tea", "packed tea", "shipped tea"]
        assert shop.lines() == ["charge tea", "pack tea", "ship tea", "pack tea", "ship tea"]
        info = await fork.info()
        assert (info.version, info.tags, info.priority) == ("1.3.0", {"customer": "7"}, 3)
        assert info.created_at > (await first.info()).updated_at
        forked = next(event for event in await fork.history() if event.type == EventType.RUN_FORKED)
        assert forked.detail == {
            "actor": "ana", "reason": "packed wrongly", "copied_from": "o-1", "events": 3, "version": "1.3.0",
            "bound_by": "fork",
        }  # fmt: skip
        assert [run.id async for run in engine.list(tag={"customer": "7"})] == ["o-1-again", "o-1"]
        with pytest.raises(perdure.IdConflict):
            await engine.fork("o-1", id="o-1-again")
        with pytest.raises(perdure.UsageError, match="no operation '7'"):
            await engine.fork("o-1", from_step=7)
        whole = await engine.fork("o-1")
        assert await whole.result() == ["charged tea", "packed tea", "shipped tea"]
        assert len(shop.lines()) == 5
    sound(shop)


async def test_a_fork_of_a_failed_run_begins_with_the_step_that_failed(shop: Application) -> None:
    broken = STEPS.replace('note(f"pack {item}")', "raise KeyError(item)").replace(
        "@perdure.step\nasync def pack", "@perdure.step(retry=perdure.Retry(attempts=1))\nasync def pack"
    )
    old = shop.version("1.3.0", BODY, steps=broken)
    new = shop.version("1.4.0", BODY)
    other = shop.version("1.5.0", "await fraud(item)\n" + BODY)
    assert other.exists()
    async with shop.client() as engine:
        worker = shop.worker(old)
        await engine.start("order", "tea", id="o-1", version="1.3.0")
        await in_state(engine, "o-1", "failed")
        worker.send(signal.SIGTERM)
        worker.finish()
        with pytest.raises(perdure.UpgradeRefused, match=r"DIVERGES at 0.*; not forked"):
            await engine.fork("o-1", to="1.5.0")
        fork = await engine.fork("o-1", to="1.4.0")
        assert (await fork.info()).version == "1.4.0"
        sound(shop)
        shop.worker(new)
        assert await fork.result() == ["charged tea", "packed tea", "shipped tea"]
        assert str(await engine.get("o-1").status()) == "failed"
    assert shop.lines() == ["charge tea", "pack tea", "ship tea"]
    sound(shop)


async def test_a_run_under_way_is_forked_and_both_go_on(shop: Application) -> None:
    folder = shop.version("1.3.0", "a = await charge(item)\nb = await held(item)\nreturn [a, b]")
    async with shop.client() as engine:
        shop.worker(folder)
        await engine.start("order", "tea", id="o-1")
        await until(lambda: "held tea" in shop.lines())
        fork = await engine.fork("o-1", id="o-2")
        shop.gate.touch()
        both = list(await asyncio.gather(engine.await_result("o-1"), fork.result()))
        assert both == [["charged tea", "let go tea"]] * 2
        assert (shop.lines().count("charge tea"), shop.lines().count("held tea")) == (1, 2)
        again = await engine.fork("o-2", id="o-3")  # a fork of a fork
        assert await again.result() == both[0]
    sound(shop)


async def test_what_upgrades_have_said_of_a_history_holds_for_its_forks(shop: Application) -> None:
    pause = "a = await {}(item)\nawait perdure.sleep(pause)\nreturn a"
    shop.version("1.3.0", pause.format("charge"))
    new = shop.version("1.4.0", pause.format("debit"), steps=STEPS.replace("def charge", "def debit"))
    async with shop.client() as engine:
        worker = shop.worker(shop.tmp / "1.3.0")
        await engine.start("order", "tea", 6.0, id="o-1", version="1.3.0")
        await until(lambda: shop.lines() == ["charge tea"])
        worker.send(signal.SIGTERM)
        worker.finish()
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        await engine.upgrades.apply(plan, reason="renamed", map={"charge": "debit"})
        fork = await engine.fork("o-1")
        with pytest.raises(perdure.UsageError, match="no upgrade that could be reverted"):
            await engine.upgrades.revert(fork.id, reason="it was none of its own")
        shop.worker(new)
        assert await fork.result() == "charged tea"
        assert await engine.await_result("o-1") == "charged tea"
    assert shop.lines() == ["charge tea"]
    sound(shop)
