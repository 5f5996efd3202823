"""Upgrades of runs that wait for a step which is executed on another queue."""

from __future__ import annotations

import signal

import perdure
from perdure import Status
from tests.upgrade.deployment import Application, in_state, sound, until

ROUTES = ("--route", "held=slow", "--route", "fraud=slow")
BODY = "a = await charge(item)\nb = await held(item)\nreturn [a, b]"


async def waiting(shop: Application, engine: perdure.Engine, run_id: str) -> None:
    """Let a run begin on 1.3.0 and wait for a step that nobody executes yet; its worker is gone then."""
    worker = shop.worker(shop.tmp / "1.3.0", *ROUTES)
    await engine.start("order", "tea", id=run_id, version="1.3.0")

    async def is_sent() -> bool:
        return [info.id async for info in engine.list(queue="slow")] == [f"{run_id}:1"]

    await until(is_sent)
    worker.send(signal.SIGTERM)
    worker.finish()
    await in_state(engine, run_id, "waiting", "pending")


async def test_a_run_goes_on_as_another_version_with_the_step_that_was_sent_before(shop: Application) -> None:
    shop.version("1.3.0", BODY)
    new = shop.version("1.4.0", BODY.replace("[a, b]", "[a, b, 'newer']"))
    async with shop.client() as engine:
        await waiting(shop, engine, "o-1")
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (done,) = await engine.upgrades.apply(plan, reason="newer")
        assert done.outcome == "applied", str(done)
        assert (await engine.check("o-1:1", to="1.4.0")).is_safe
        shop.worker(new, *ROUTES)
        shop.worker(shop.tmp / "1.3.0", "--queue", "slow", *ROUTES)
        shop.gate.touch()
        assert await engine.await_result("o-1") == ["charged tea", "let go tea", "newer"]
        assert (await engine.get("o-1:1").info()).version == "1.3.0"
        assert (await engine.check("o-1", to="1.4.0")).is_safe
    assert shop.lines() == ["charge tea", "held tea"]
    sound(shop)


async def test_a_step_that_was_sent_and_dropped_ends_and_another_one_is_sent(shop: Application) -> None:
    shop.version("1.3.0", BODY)
    new = shop.version("1.4.0", BODY.replace("held", "fraud"))
    async with shop.client() as engine:
        await waiting(shop, engine, "o-1")
        plan = await engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (done,) = await engine.upgrades.apply(plan, reason="redo", from_step=1)
        assert done.outcome == "applied", str(done)
        sound(shop)
        shop.worker(new, *ROUTES)
        shop.worker(new, "--queue", "slow", *ROUTES)
        assert await engine.await_result("o-1") == ["charged tea", "fine"]
        shop.worker(shop.tmp / "1.3.0", "--queue", "slow", *ROUTES)
        await in_state(engine, "o-1:1", Status.CANCELLED)
        sent = [event.detail["run"] for event in await engine.get("o-1").history() if event.type == "step_sent"]
        assert sent == ["o-1:1", "o-1:1~2"]
        assert (await engine.check("o-1", to="1.4.0")).is_safe
    assert shop.lines() == ["charge tea", "fraud tea"]
    sound(shop)
