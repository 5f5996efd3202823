"""Runs that have ended, failed, were retried or cancelled: the code must take them to the same end."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.model.status import EventType
from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel.outside import enter, here
from tests.kernel.steps import Declined, add, fail, names, plus, try_it
from tests.kernel.test_retry import reopened
from tests.kernel.test_sync import cancel_after
from tests.kernel.world import World
from tests.replay.recorded import flow, history_of, lived, unfinished, verdict


async def original() -> Any:
    return [await add(1, 1), await names()]


async def appended() -> Any:
    result = await original()
    await plus.aio(1, 1)
    return result


async def ends_early() -> Any:
    return [await add(1, 1)]


async def ends_otherwise() -> Any:
    await original()
    return "other"


async def ends_in_error() -> Any:
    await original()
    raise ValueError("at last")


def test_an_ended_run_must_end_the_same_way() -> None:
    history = history_of(lived(original))
    assert verdict(original, history).kind is Kind.SAFE
    assert verdict(original, history).next == "the run completes"
    other = verdict(ends_otherwise, history)
    assert (other.kind, other.at) == (Kind.SAFE_ARGS_DIFFER, "end")
    assert other.expected == 'the result [2,["a","b"]]'
    assert other.found == 'the code returns "other"'
    raised = verdict(ends_in_error, history)
    assert (raised.kind, raised.at) == (Kind.RAISES, "end")
    assert "ValueError: at last" in raised.found
    longer = verdict(appended, history)
    assert (longer.kind, longer.at) == (Kind.DIVERGES, "end")
    assert longer.found == "the code goes on: it waits for step 'plus' (2)"
    assert verdict(ends_early, history).kind is Kind.DIVERGES


async def fails(text: str) -> None:
    await add(1, 1)
    await fail(text)


async def fails_by_itself(text: str) -> None:
    await add(1, 1)
    try:
        await fail(text)
    except Declined:
        raise LookupError(text) from None


async def survives(text: str) -> str:
    await add(1, 1)
    try:
        await fail(text)
    except Declined:
        return "fine"
    return text


async def says_more(text: str) -> None:
    await add(1, 1)
    try:
        await fail(text)
    except Declined:
        raise Declined(f"{text}, sorry") from None


def test_a_failed_run_must_fail_with_the_same_error() -> None:
    history = history_of(lived(fails, "gone"))
    assert verdict(fails, history).kind is Kind.SAFE
    assert verdict(fails_by_itself, history).kind is Kind.DIVERGES
    assert verdict(survives, history).found == "now the run completes"
    assert verdict(says_more, history).kind is Kind.SAFE_ARGS_DIFFER


def test_a_recorded_failure_that_ends_the_run_next_is_not_the_codes_fault() -> None:
    history = unfinished(lived(fails, "gone"))
    told = verdict(fails, history)
    assert told.kind is Kind.SAFE
    assert told.next.startswith("the run fails: tests.kernel.steps.Declined: gone")
    assert verdict(fails_by_itself, history).kind is Kind.RAISES


def test_a_run_that_was_retried_is_checked_without_what_the_retry_took_back() -> None:
    async def card() -> list[Any]:
        return [await add(1, 1), await try_it("card"), await add(2, 2)]

    async def bank() -> list[Any]:
        return [await add(1, 1), await try_it("bank"), await add(2, 2)]

    async def other() -> list[Any]:
        return [await add(1, 1), await names(), await add(2, 2)]

    before = here()
    failed = lived(card, broken=["card"])
    again = World(flow(card))
    again.execute(reopened(failed.log))
    enter(before)
    assert verdict(card, history_of(again)).kind is Kind.SAFE
    assert verdict(bank, history_of(again)).kind is Kind.SAFE_ARGS_DIFFER
    assert verdict(other, history_of(again)).at == "1"
    waiting = history_of(again, reopened(failed.log))
    assert verdict(card, waiting).next == "step 'try_it' (1)"


def test_a_cancelled_run_is_cancelled_again() -> None:
    async def cleans_up() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await add(1, 1)

    async def swallows() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await add(1, 1)
        return "done"

    before = here()
    world = World(flow(cleans_up))
    world.execute(during=cancel_after(5))
    enter(before)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert verdict(cleans_up, history_of(world)).next == "the run is cancelled"
    told = verdict(swallows, history_of(world))
    assert (told.kind, told.found) == (Kind.DIVERGES, "now the run completes")
