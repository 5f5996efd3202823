"""What a run is bound to, and why, by where it comes from: a new version and a route change nothing of it."""

from __future__ import annotations

import perdure
from tests.upgrade.deployment import OLD, STEPS, Application, in_state, sound

FAILING = "a = await charge(item)\nraise ValueError(a)"


async def why(engine: perdure.Engine, run_id: str) -> tuple[str, str | None, str | None]:
    """Return the version of a run, what decided on it, and what it is a fork of."""
    binding = await engine.versions.of(run_id)
    assert {one.label for one in binding.operations} <= {binding.label, "1.3.0"}
    assert (await engine.get(run_id).info()).version == binding.label
    return binding.label, binding.bound_by, binding.copied_from


async def test_each_origin_has_its_version_and_says_why(shop: Application) -> None:
    old = shop.version("1.3.0", OLD)
    async with shop.client() as engine:
        shop.worker(old)
        await engine.start("order", "tea", 0.0, id="done")
        await engine.start("order", "tea", id="waits")
        await in_state(engine, "done", "completed")
        await in_state(engine, "waits", "waiting")
        shop.version("1.4.0", OLD, steps=STEPS.replace('"fine"', '"good"'))
        await engine.routes.set("order", {"1.4.0": 1}, reason="all new ones")

        started = await engine.start("order", "tea", id="new", delay="1h")
        assert await why(engine, started.id) == ("1.4.0", "route", None)
        asked = await engine.start("order", "tea", id="asked", version="1.3.0", delay="1h")
        assert await why(engine, asked.id) == ("1.3.0", "version", None)
        await engine.start("order", "tea", 0.0, id="done")  # the first start decides
        assert await why(engine, "done") == ("1.3.0", "newest", None)

        await engine.fork("done", id="fork")
        assert await why(engine, "fork") == ("1.3.0", "fork", "done")
        await engine.fork("done", id="step", from_step=1)
        assert await why(engine, "step") == ("1.3.0", "fork", "done")
        await engine.fork("done", id="other", to="1.4.0")
        assert await why(engine, "other") == ("1.4.0", "version", "done")
        await engine.fork("other", id="again")
        assert await why(engine, "again") == ("1.4.0", "fork", "other")

        plan = await engine.upgrades.plan(ids=["waits"], to="1.4.0")
        await engine.upgrades.apply(plan, reason="it is better")
        assert await why(engine, "waits") == ("1.4.0", "upgrade", None)
        await engine.fork("waits", id="upgraded")
        assert await why(engine, "upgraded") == ("1.4.0", "fork", "waits")
        await engine.upgrades.revert("waits", reason="it is not")
        assert await why(engine, "waits") == ("1.3.0", "newest", None)
    sound(shop)


async def test_a_failed_run_that_is_retried_has_its_own_version(shop: Application) -> None:
    old = shop.version("1.3.0", FAILING)
    async with shop.client() as engine:
        shop.worker(old)
        await engine.start("order", "tea", id="failed")
        await in_state(engine, "failed", "failed")
        shop.version("1.4.0", OLD)
        await engine.retry("failed")
        await in_state(engine, "failed", "failed")
        assert await why(engine, "failed") == ("1.3.0", "newest", None)
        assert len(shop.lines()) == 1
    sound(shop)
