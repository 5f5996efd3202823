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
from tests.kernel.outside import enter, here
from tests.kernel.programs import EVERY
from tests.kernel.replay import record
from tests.kernel.steps import add, ahead, flaky, names, once, peek, plus
from tests.kernel.world import World
from tests.replay.recorded import flow, history_of, lived, unfinished, verdict


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
    told = verdict(body, unfinished(lived(original)))
    assert (told.kind, told.at) == (kind, at), str(told)
    assert expected in told.expected
    assert found in told.found
    assert "\n" not in str(told)
    assert str(told).startswith(f"run (flow): {kind}")


def test_what_comes_next_is_told_for_every_point_of_an_unfinished_run() -> None:
    log = lived(original).log
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
    before = here()
    world = record(workflow, seed)
    enter(before)
    body = workflow.definition.function
    for cut in range(1, len(world.log) + 1, 3 if cut_often(name) else 1):
        told = verdict(body, history_of(world, world.log[:cut]))
        assert told.kind is Kind.SAFE, str(told)
    assert verdict(body, history_of(world)).kind is Kind.SAFE


def cut_often(name: str) -> bool:
    return len(EVERY) > 20 and name not in sync_programs.EVERY


# ----------------------------------------------------------------------------------------------------- stored values


@dataclass
class Price:
    cents: int


def test_a_stored_value_must_load_as_what_the_code_says() -> None:
    async def typed() -> int:
        return await add(1, 1)

    world = lived(typed)
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

    told = verdict(three, history_of(lived(two, 1, 2)))
    assert (told.kind, told.at) == (Kind.STATE_INCOMPATIBLE, "input")
    assert "now also needs 'third'" in told.found


# ------------------------------------------------------------------------------------------------ what is not recorded


def test_the_check_ends_at_a_step_that_is_never_recorded_and_says_so() -> None:
    async def pure() -> list[Any]:
        return [await add(1, 1), await peek(1), await add(2, 2)]

    told = verdict(pure, history_of(lived(pure)))
    assert (told.kind, told.unchecked) == (Kind.SAFE, 1)
    assert str(told).endswith("next: step 'peek' (1), which is not recorded; 1 events after it were not checked")


def test_attempts_under_way_and_ahead_steps_are_known() -> None:
    async def tries() -> list[Any]:
        return [await ahead(1), await flaky(2)]

    world = lived(tries)
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
    history = unfinished(lived(sync_original))
    assert verdict(sync_original, history).next == "the run completes"
    told = verdict(sync_inserted, history)
    assert (told.kind, told.at) == (Kind.DIVERGES, "1")
    assert verdict(sync_raises, history).kind is Kind.RAISES
    part = unfinished(lived(sync_original), 3)
    assert verdict(sync_original, part).next == "timer 'sleep' (1)"


def test_a_body_that_does_not_come_back_is_not_waited_for() -> None:
    told = verdict(sync_hangs, unfinished(lived(sync_original)), patience_s=0.2)
    assert (told.kind, told.at) == (Kind.RAISES, "0")
    assert "within 0.2 s" in told.found
