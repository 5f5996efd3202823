"""The first thing a body does has the time and the claim of its beginning."""

from __future__ import annotations

import asyncio

import perdure
from tests.kernel.outside import note
from tests.kernel.replay import check_everywhere, record
from tests.kernel.world import EPOCH_US


@perdure.workflow
async def sleeps_at_once() -> list[float]:
    info = perdure.info()
    note(info.epoch, info.attempt)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(3600)
    return [began, asyncio.get_running_loop().time() - began]


def test_a_sleep_before_anything_else_is_as_long_as_asked_for() -> None:
    world = record(sleeps_at_once)
    fired = next(event for event in world.log if event.type == "timer_fired")
    assert fired.at - EPOCH_US >= 3_600_000_000


def test_a_body_begins_with_the_first_claim() -> None:
    world = record(sleeps_at_once)
    assert world.outside.trace == [(1, 1)]
    check_everywhere(sleeps_at_once, 0, settled=False)
