"""A body's clock begins when its run is first claimed, live and on replay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import perdure


@perdure.workflow
async def look_then_nap(seconds: float) -> list[datetime]:
    first = perdure.now()
    await asyncio.sleep(seconds)
    return [first, perdure.now()]


async def test_a_sleep_at_the_very_start_of_a_body_lasts_as_long_as_it_says(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [look_then_nap]) as engine:
        first, second = await engine.run(look_then_nap, 0.2)
    assert second - first >= timedelta(seconds=0.2)
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)


async def test_the_first_look_at_the_clock_is_the_same_after_an_eviction(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [look_then_nap], evict_after=0.01, hint=0.01, poll=0.05) as engine:
        run = await engine.start(look_then_nap, 0.8)
        first, second = await run.result()
        claims = [event for event in await run.history() if event.type == "run_claimed"]
    assert len(claims) == 2
    assert second - first >= timedelta(seconds=0.8)


async def test_the_clock_of_a_delayed_run_begins_with_its_claim(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [look_then_nap], poll=0.05) as engine:
        run = await engine.start(look_then_nap, 0.1, delay=0.3)
        first, second = await run.result()
        created = (await run.info()).created_at
    assert first - created >= timedelta(seconds=0.3)
    assert second - first >= timedelta(seconds=0.1)
