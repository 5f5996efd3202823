"""A patch: new runs take it, runs that are past it do not, and every replay says the same again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import perdure
from perdure.model.event import Event
from perdure.model.status import EventType
from tests.kernel.outside import Outside, note
from tests.kernel.programs import chain
from tests.kernel.replay import check_crash, check_everywhere, check_whole_replay, record, whole
from tests.kernel.steps import add, ahead, peek, plus, try_it
from tests.kernel.test_retry import reopened
from tests.kernel.world import World, result

SEEDS = range(3)


def flow(body: Callable[..., Any]) -> perdure.Workflow[..., Any]:
    return perdure.workflow(name="flow")(body)


def go_on(body: Callable[..., Any], log: Sequence[Event], seed: int = 7) -> World:
    world = World(flow(body), outside=Outside(seed))
    world.execute(log)
    return world


def markers(log: Sequence[Event]) -> list[str | None]:
    return [event.name for event in log if event.type == EventType.PATCH_TAKEN]


async def before() -> list[int]:
    first = await add(1, 1)
    await asyncio.sleep(5)
    return [first, await add(2, 2)]


async def after() -> list[int]:
    first = await add(1, 1)
    extra = [await ahead(first)] if perdure.patched("extra") else []
    await asyncio.sleep(5)
    return [first, *extra, await add(2, 2)]


def test_a_new_run_takes_the_patch_and_records_it_once() -> None:
    world = check_everywhere(flow(after), 0, settled=True)
    assert result(world.log[-1]) == ("completed", [2, 20, 4])
    marker = next(event for event in world.log if event.type == EventType.PATCH_TAKEN)
    assert (marker.op, marker.kind, marker.name, marker.payload) == ("~patch:extra", "patch", "extra", None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_the_old_code_goes_on_from_every_point_and_is_never_parked(seed: int) -> None:
    old = record(flow(before), seed)
    for cut in range(1, len(old.log)):
        log = old.log[:cut]
        is_past = any(event.op is not None and event.op != "0" for event in log)
        world = go_on(after, log, seed + cut)
        assert result(world.log[-1]) == ("completed", [2, 4] if is_past else [2, 20, 4])
        assert markers(world.log) == ([] if is_past else ["extra"])
        check_whole_replay(world)


def test_a_patch_takes_no_place_so_later_operations_keep_their_ids() -> None:
    async def only_asks() -> list[int]:
        assert perdure.patched("one")
        first = await add(1, 1)
        assert perdure.patched("two")
        await asyncio.sleep(5)
        return [first, await add(2, 2)]

    old, new = record(flow(before)), record(flow(only_asks))
    steps = [[(e.op, e.name) for e in world.log if e.kind in {"step", "timer"}] for world in (old, new)]
    assert steps[0] == steps[1]


def test_the_first_answer_holds_for_the_whole_run() -> None:
    async def loop() -> list[Any]:
        seen: list[Any] = []
        for n in range(4):
            seen.append(perdure.patched("more"))
            seen.append(await add(n, 0))
            await asyncio.sleep(1)
        return seen

    async def old_loop() -> list[Any]:
        for n in range(4):
            await add(n, 0)
            await asyncio.sleep(1)
        return []

    assert result(record(flow(loop)).log[-1])[1] == [True, 0, True, 1, True, 2, True, 3]
    old = record(flow(old_loop))
    half = old.log[: next(event.seq for event in old.log if event.op == "2")]
    world = go_on(loop, half)
    assert result(world.log[-1])[1] == [False, 0, False, 1, False, 2, False, 3]
    assert markers(world.log) == []


def test_a_call_that_has_moved_or_gone_leaves_the_run_on_its_path() -> None:
    async def moved() -> list[int]:
        first = await add(1, 1)
        extra = [await ahead(first)]
        await asyncio.sleep(5)
        second = await add(2, 2)
        return [first, *extra, second] if perdure.patched("extra") else []

    async def gone() -> list[int]:
        first = await add(1, 1)
        extra = [await ahead(first)]
        await asyncio.sleep(5)
        return [first, *extra, await add(2, 2)]

    log = whole(record(flow(after)))
    for body in (moved, gone):
        world = go_on(body, log)
        assert result(world.log[-1]) == ("completed", [2, 20, 4])
        assert markers(world.log) == ["extra"]


async def branches_before() -> int:
    async def branch(n: int) -> int:
        return await add(n, 0)

    total = sum(await asyncio.gather(branch(1), branch(2)))
    return await add(total, 0)


async def branches_after() -> int:
    async def branch(n: int) -> int:
        found = await add(n, 0)
        return await plus.aio(found, 100) if perdure.patched("more") else found

    total = sum(await asyncio.gather(branch(1), branch(2)))
    return await add(total, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_comes_after_a_branch_shows_that_the_branch_was_passed(seed: int) -> None:
    old = record(flow(branches_before), seed)
    for cut in range(1, len(old.log)):
        log = old.log[:cut]
        world = go_on(branches_after, log, seed)
        is_past = any(event.op == "2" for event in log)
        assert result(world.log[-1]) == ("completed", 3 if is_past else 203), cut
        check_whole_replay(world)


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_between_the_answer_and_its_record_gives_the_same_answer(seed: int) -> None:
    """The other branch's record may come between: it was asked for before, and so shows nothing."""

    async def two() -> list[Any]:
        async def quick() -> bool:
            await add(0, 0)
            return perdure.patched("more")

        async def busy() -> int:
            total = 0
            for n in range(6):
                total = await add(total, n)
            return total

        return list(await asyncio.gather(quick(), busy(), busy()))

    original = record(flow(two), seed)
    assert result(original.log[-1])[1][0] is True
    for cut in range(1, len(original.log)):
        check_crash(original, cut, seed + cut, settled=True)


def test_a_step_that_is_recorded_late_does_not_overtake_the_patch_it_comes_after() -> None:
    async def late() -> list[int]:
        seen = [await ahead(n) for n in range(3)]
        if perdure.patched("more"):
            seen.append(await ahead(9))
        return seen

    for seed in range(6):
        world = record(flow(late), seed)
        order = [event.name for event in world.log if event.op in {"~patch:more", "3"}]
        assert order == ["more", "ahead"]
        for cut in range(1, len(world.log)):
            check_crash(world, cut, seed, settled=True)


def test_a_retry_keeps_the_path_that_was_taken() -> None:
    async def fails() -> list[Any]:
        first = await try_it("a")
        taken = perdure.patched("more")
        note(taken)
        return [first, taken, await try_it("b")]

    world = World(flow(fails))
    world.outside.broken.add("b")
    world.execute()
    assert "Declined" in result(world.log[-1])[1]
    assert markers(world.log) == ["more"]
    check_whole_replay(world)
    again = World(flow(fails), outside=Outside(5))
    again.execute(reopened(world.log))
    assert result(again.log[-1]) == ("completed", ["a", True, "b"])
    assert again.outside.trace == [(True,)]
    assert markers(again.log) == ["more"]


async def patched_branches() -> list[Any]:
    """A patch is asked for in branches that go on beside each other, in a loop, and beside steps recorded late."""

    async def branch(n: int) -> list[Any]:
        seen: list[Any] = []
        for k in range(2):
            seen.append(await add(n, k))
            if perdure.patched(f"branch {n}"):
                seen.append(await ahead(k))
        note(n, list(seen))
        return seen

    found = await asyncio.gather(branch(1), branch(2), chain(0, 3), peek(1))
    if perdure.patched("the end"):
        found.append(await add(1, 1))
    return [*found, perdure.patched("branch 1")]


@pytest.mark.parametrize("seed", SEEDS)
def test_branches_that_ask_for_patches_replay_from_every_crash_point(seed: int) -> None:
    check_everywhere(flow(patched_branches), seed, settled=True)


def test_it_is_refused_outside_a_body_and_without_a_name() -> None:
    with pytest.raises(perdure.UsageError, match="outside a run"):
        perdure.patched("more")

    async def nameless() -> str:
        try:
            perdure.patched("")
        except perdure.UsageError as error:
            return str(error)
        return ""

    assert "the name of a patch must be a text" in result(record(flow(nameless)).log[-1])[1]
