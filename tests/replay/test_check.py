"""Changed code beside a recorded run: each kind of change gets its verdict, and no step is called for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure.model.event import Event
from perdure.model.status import EventType
from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel import sync_programs
from tests.kernel.outside import enter
from tests.kernel.programs import EVERY
from tests.kernel.replay import record
from tests.kernel.steps import Declined, add, ahead, fail, flaky, names, once, peek, plus, try_it
from tests.kernel.test_retry import reopened
from tests.kernel.test_sync import cancel_after
from tests.kernel.world import World
from tests.replay.recorded import flow, history_of, lived, unfinished, verdict


@pytest.fixture(autouse=True)
def no_step_is_called() -> Any:
    """Whatever a test checks: a step that is called would be counted here."""
    outside = enter(World(flow(original)).outside)
    yield
    assert not outside.calls


def lived_before(body: Any, *args: Any, **options: Any) -> World:
    world = lived(body, *args, **options)
    enter(World(flow(original)).outside)
    return world


async def original() -> Any:
    first = await add(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("half", first)
    second = await names()
    return [first, second, await once(1)]


async def refactored() -> Any:
    async def middle(value: int) -> list[str]:
        await perdure.sleep("5s")
        await perdure.checkpoint("half", value)
        return await names()

    result: list[Any] = [await add(1, 1)]
    result.append(await middle(result[0]))
    return [*result, await once(1)]


async def appended() -> Any:
    result = await original()
    await plus.aio(1, 1)
    return result


async def patched() -> Any:
    first = await add(1, 1)
    if perdure.patched("more"):
        await plus.aio(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("half", first)
    return [first, await names(), await once(1)]


async def inserted() -> Any:
    first = await add(1, 1)
    await plus.aio(1, 1)
    await asyncio.sleep(5)
    return first


async def removed() -> Any:
    first = await add(1, 1)
    await perdure.checkpoint("half", first)
    return [first, await names(), await once(1)]


async def reordered() -> Any:
    await asyncio.sleep(5)
    first = await add(1, 1)
    await perdure.checkpoint("half", first)
    return [first, await names(), await once(1)]


async def ends_early() -> Any:
    return [await add(1, 1)]


async def raises() -> Any:
    first = await add(1, 1)
    if first < 10:
        raise ValueError("too little")
    await asyncio.sleep(5)


async def other_arguments() -> Any:
    first = await add(1, 2)
    await asyncio.sleep(5)
    await perdure.checkpoint("half", first)
    return [first, await names(), await once(1)]


async def other_milestone() -> Any:
    first = await add(1, 1)
    await asyncio.sleep(5)
    await perdure.checkpoint("half", "way")
    return [first, await names(), await once(1)]


async def longer_sleep() -> Any:
    first = await add(1, 1)
    await asyncio.sleep(5_000)
    await perdure.checkpoint("half", first)
    return [first, await names(), await once(1)]


async def spins() -> Any:
    await add(1, 1)
    while True:
        await asyncio.sleep(0)


async def exits() -> Any:
    await add(1, 1)
    raise SystemExit(3)


async def waits_for_ever() -> Any:
    await original()
    await asyncio.Event().wait()


STEP_0 = "step 'add' (event 3, step_completed)"
SLEEP_1 = "timer 'sleep' (event 4, timer_fired)"
CHECKPOINT_2 = "checkpoint 'half' (event 5, checkpoint_reached)"
VARIANTS: dict[str, tuple[Callable[[], Any], Kind, str | None, str, str]] = {
    "unchanged": (original, Kind.SAFE, None, "", ""),
    "refactored": (refactored, Kind.SAFE, None, "", ""),
    "appended": (appended, Kind.SAFE, None, "", ""),
    "patched": (patched, Kind.SAFE, None, "", ""),
    "inserted": (inserted, Kind.DIVERGES, "1", SLEEP_1, "the code asks for step 'plus'"),
    "removed": (removed, Kind.DIVERGES, "1", SLEEP_1, "the code asks for checkpoint 'half'"),
    "reordered": (reordered, Kind.DIVERGES, "0", STEP_0, "the code asks for timer 'sleep'"),
    "ends early": (ends_early, Kind.DIVERGES, "1", SLEEP_1, "the code ends before: the run completes"),
    "raises": (raises, Kind.RAISES, "0", "", "the code raises ValueError: too little ("),
    "arguments": (other_arguments, Kind.SAFE_ARGS_DIFFER, "0", "step 'add' (event 3) with {", "calls it with {"),
    "milestone": (other_milestone, Kind.SAFE_ARGS_DIFFER, "2", "checkpoint 'half' (event 5) with 2", 'gives it "way"'),
    "longer sleep": (longer_sleep, Kind.SAFE_ARGS_DIFFER, "1", "timer 'sleep' (event 4) over at ", "for one until"),
    "spins": (spins, Kind.RAISES, "0", "", "the code runs without end"),
    "exits": (exits, Kind.RAISES, "0", "", "the code calls sys.exit(3)"),
    "waits": (waits_for_ever, Kind.RAISES, "4", "", "can never happen"),
}  # fmt: skip


@pytest.mark.parametrize("case", VARIANTS)
def test_a_variant_of_the_code_gets_its_verdict(case: str) -> None:
    body, kind, at, expected, found = VARIANTS[case]
    told = verdict(body, unfinished(lived_before(original)))
    assert (told.kind, told.at) == (kind, at), str(told)
    assert expected in told.expected
    assert found in told.found
    assert "\n" not in str(told)
    assert str(told).startswith(f"run (flow): {kind}")


def test_what_comes_next_is_told_for_every_point_of_an_unfinished_run() -> None:
    log = lived_before(original).log
    told = [verdict(original, history_of(World(flow(original)), log[:n])).next for n in range(1, len(log))]
    assert told[0] == "the body begins"
    assert told[1] == "step 'add' (0)"
    assert told[-1] == "the run completes"
    assert "checkpoint 'half' (2)" in told
    for n in range(2, len(log)):
        assert verdict(original, history_of(World(flow(original)), log[:n])).kind is Kind.SAFE


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted({**EVERY, **sync_programs.EVERY}))
def test_the_code_that_recorded_a_run_is_safe_for_it_at_every_point(name: str, seed: int) -> None:
    workflow = {**EVERY, **sync_programs.EVERY}[name]
    world = record(workflow, seed)
    enter(World(flow(original)).outside)
    body = workflow.definition.function
    for cut in range(1, len(world.log) + 1, 3 if cut_often(name) else 1):
        told = verdict(body, history_of(world, world.log[:cut]))
        assert told.kind is Kind.SAFE, str(told)
    assert verdict(body, history_of(world)).kind is Kind.SAFE


def cut_often(name: str) -> bool:
    return len(EVERY) > 20 and name not in sync_programs.EVERY


# ---------------------------------------------------------------------------------------------------------- ended runs


async def ends_otherwise() -> Any:
    await original()
    return "other"


async def ends_in_error() -> Any:
    await original()
    raise ValueError("at last")


def test_an_ended_run_must_end_the_same_way() -> None:
    history = history_of(lived_before(original))
    assert verdict(original, history).kind is Kind.SAFE
    assert verdict(original, history).next == "the run completes"
    other = verdict(ends_otherwise, history)
    assert (other.kind, other.at) == (Kind.SAFE_ARGS_DIFFER, "end")
    assert other.expected == 'the result [2,["a","b"],3]'
    assert other.found == 'the code returns "other"'
    raised = verdict(ends_in_error, history)
    assert (raised.kind, raised.at) == (Kind.RAISES, "end")
    assert "ValueError: at last" in raised.found
    longer = verdict(appended, history)
    assert (longer.kind, longer.at) == (Kind.DIVERGES, "end")
    assert longer.found == "the code goes on: it waits for step 'plus' (5)"
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
    history = history_of(lived_before(fails, "gone"))
    assert verdict(fails, history).kind is Kind.SAFE
    assert verdict(fails_by_itself, history).kind is Kind.DIVERGES
    assert verdict(survives, history).found == "now the run completes"
    assert verdict(says_more, history).kind is Kind.SAFE_ARGS_DIFFER


def test_a_recorded_failure_that_ends_the_run_next_is_not_the_codes_fault() -> None:
    history = unfinished(lived_before(fails, "gone"))
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

    failed = lived(card, broken=["card"])
    again = World(flow(card))
    again.execute(reopened(failed.log))
    enter(World(flow(original)).outside)
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

    world = World(flow(cleans_up))
    world.execute(during=cancel_after(5))
    enter(World(flow(original)).outside)
    assert world.log[-1].type == EventType.RUN_CANCELLED
    assert verdict(cleans_up, history_of(world)).next == "the run is cancelled"
    told = verdict(swallows, history_of(world))
    assert (told.kind, told.found) == (Kind.DIVERGES, "now the run completes")


# ----------------------------------------------------------------------------------------------------- stored values


@dataclass
class Price:
    cents: int


def test_a_stored_value_must_load_as_what_the_code_says() -> None:
    async def typed() -> int:
        return await add(1, 1)

    world = lived_before(typed)
    broken = history_of(world, [e._replace(payload=b'{"$":"x:Gone","v":{}}') if e.op else e for e in world.log])
    told = verdict(typed, broken)
    assert (told.kind, told.at) == (Kind.STATE_INCOMPATIBLE, "0")
    assert "x:Gone" in told.found or "x.Gone" in told.found
    text = history_of(world, [e._replace(payload=b'"two"') if e.op else e for e in world.log])
    told = verdict(typed, text)
    assert (told.kind, told.expected) == (Kind.STATE_INCOMPATIBLE, "a result of type str (event 3)")
    assert told.found == "step 'add' returns int now"


def test_arguments_of_the_run_must_load() -> None:
    async def two(left: int, right: int) -> int:
        return await add(left, right)

    async def three(left: int, right: int, third: int) -> int:
        return await add(left, right + third)

    told = verdict(three, history_of(lived_before(two, 1, 2)))
    assert (told.kind, told.at) == (Kind.STATE_INCOMPATIBLE, "input")
    assert "now also needs 'third'" in told.found


# ------------------------------------------------------------------------------------------------ what is not recorded


def test_the_check_ends_at_a_step_that_is_never_recorded_and_says_so() -> None:
    async def pure() -> list[Any]:
        return [await add(1, 1), await peek(1), await add(2, 2)]

    told = verdict(pure, history_of(lived_before(pure)))
    assert (told.kind, told.unchecked) == (Kind.SAFE, 1)
    assert str(told).endswith("next: step 'peek' (1), which is not recorded; 1 events after it were not checked")


def test_attempts_under_way_and_ahead_steps_are_known() -> None:
    async def tries() -> list[Any]:
        return [await ahead(1), await flaky(2)]

    world = lived_before(tries)
    events: list[Event] = [event for event in world.log if event.type != EventType.STEP_COMPLETED or event.op == "0"]
    told = verdict(tries, history_of(world, events[:-1]))
    assert (told.kind, told.next) == (Kind.SAFE, "step 'flaky' (1)")


# ----------------------------------------------------------------------------------------------------- sync workflows


def sync_original() -> Any:
    first = add.blocking(1, 1)
    perdure.blocking.sleep(5)
    return [first, names.blocking()]


def sync_inserted() -> Any:
    first = add.blocking(1, 1)
    plus(1, 1)
    perdure.blocking.sleep(5)
    return [first, names.blocking()]


def sync_raises() -> Any:
    add.blocking(1, 1)
    raise ValueError("too little")


def sync_hangs() -> Any:
    add.blocking(1, 1)
    threading.Event().wait(1.5)


def test_sync_code_is_checked_like_async_code() -> None:
    history = unfinished(lived_before(sync_original))
    assert verdict(sync_original, history).next == "the run completes"
    told = verdict(sync_inserted, history)
    assert (told.kind, told.at) == (Kind.DIVERGES, "1")
    assert verdict(sync_raises, history).kind is Kind.RAISES
    part = unfinished(lived_before(sync_original), 3)
    assert verdict(sync_original, part).next == "timer 'sleep' (1)"


def test_a_body_that_does_not_come_back_is_not_waited_for() -> None:
    told = verdict(sync_hangs, unfinished(lived_before(sync_original)), patience_s=0.2)
    assert (told.kind, told.at) == (Kind.RAISES, "0")
    assert "within 0.2 s" in told.found
