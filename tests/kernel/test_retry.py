"""An operator's retry of a failed run: what failed is tried again, what is done stays done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import perdure
from perdure.kernel.failure import FailureTrail
from perdure.model.event import Draft, Event, seal, tail_of
from perdure.model.status import EventType
from tests.kernel.outside import Outside
from tests.kernel.replay import check_crash, check_whole_replay
from tests.kernel.steps import Declined, add, once, try_it, try_once
from tests.kernel.world import World, result


def reopened(log: Sequence[Event]) -> list[Event]:
    """Append what `Engine.retry` appends."""
    failed = log[-1]
    assert failed.type == EventType.RUN_FAILED
    detail = {"actor": "test", "failed_seq": failed.seq, **msgspec.json.decode(failed.detail or b"{}")}
    draft = Draft(EventType.RUN_REOPENED, failed.at + 1, state="failed>pending", detail=msgspec.json.encode(detail))
    return [*log, *seal(failed.run_id, tail_of(failed), (draft,), failed.epoch, len(log))]


class Operator:
    """Runs a workflow until it fails, mends something, and lets it go on."""

    def __init__(self, workflow: perdure.Workflow[..., Any], broken: set[str], seed: int = 0) -> None:
        self.workflow = workflow
        self.world = World(workflow, seed=seed)
        self.world.outside.broken = broken
        self.last = self.world.execute()

    def retry(self, *, still_broken: Sequence[str] = (), seed: int = 50) -> World:
        prefix = reopened(self.world.log)
        outside = Outside(seed)
        outside.broken = set(still_broken)
        self.world = World(self.workflow, outside=outside)
        self.last = self.world.execute(prefix)
        return self.world


def causes(failed: Event) -> Any:
    return msgspec.json.decode(failed.detail or b"{}").get("cause_seqs")


@perdure.workflow
async def one_after_another() -> list[Any]:
    return [await add(1, 1), await try_it("card"), await add(2, 2)]


def test_completed_steps_keep_their_results_and_the_failed_one_is_tried_again() -> None:
    operator = Operator(one_after_another, {"card"})
    assert operator.last.type == EventType.RUN_FAILED
    world = operator.retry()
    assert result(operator.last) == ("completed", [2, "card", 4])
    assert world.outside.calls == {"1": 1, "2": 1}
    check_whole_replay(world)


def test_it_may_fail_twice_in_a_row() -> None:
    operator = Operator(one_after_another, {"card"})
    operator.retry(still_broken=["card"])
    assert operator.last.type == EventType.RUN_FAILED
    world = operator.retry()
    assert result(operator.last) == ("completed", [2, "card", 4])
    assert world.outside.calls == {"1": 1, "2": 1}
    check_whole_replay(world)


@perdure.workflow
async def with_clean_up() -> Any:
    await add(1, 1)
    try:
        value = await try_it("card")
    except Declined:
        await add(10, 10)  # the id that `add(3, 3)` has when the card is good
        await asyncio.sleep(1)
        perdure.publish("state", "refunded")
        await once(7)
        raise
    total = await add(3, 3)
    await asyncio.sleep(3600)
    perdure.publish("state", "paid")
    return [value, total, await once(1)]


@pytest.mark.parametrize("seed", range(4))
def test_clean_up_after_the_failure_is_not_taken_for_what_comes_after_success(seed: int) -> None:
    operator = Operator(with_clean_up, {"card"}, seed)
    operator.retry(still_broken=["card"])
    before = operator.world.log[-1].at
    world = operator.retry(seed=seed + 9)
    assert result(operator.last) == ("completed", ["card", 6, 3])
    assert world.log[-1].at - before >= 3_600_000_000
    assert world.outside.calls == {"1": 1, "2": 1, "5": 1}
    check_whole_replay(world)


@perdure.workflow
async def siblings() -> list[Any]:
    async def branch(label: str, pause: float) -> list[Any]:
        first = await add(len(label), 0)
        await asyncio.sleep(pause)
        return [first, await try_it(label), await add(first, 1)]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(label, n * 3)) for n, label in enumerate(("a", "bb", "ccc"))]
    except* Declined:
        await add(0, 0)  # clean-up of the whole
        raise
    return [task.result() for task in tasks]


@pytest.mark.parametrize("broken", ["a", "bb", "ccc", "a bb ccc"])
@pytest.mark.parametrize("seed", range(4))
def test_sibling_branches_keep_their_results(broken: str, seed: int) -> None:
    operator = Operator(siblings, set(broken.split()), seed)
    done = {event.op for event in operator.world.log if event.type == EventType.STEP_COMPLETED}
    while operator.last.type == EventType.RUN_FAILED:
        assert causes(operator.last)
        operator.retry(seed=seed + 50)
        check_whole_replay(operator.world)
    assert result(operator.last) == ("completed", [[1, "a", 2], [2, "bb", 3], [3, "ccc", 4]])
    again = set(operator.world.outside.calls) & done
    assert again <= {"3"}, "3 is the clean-up, which belonged to the failure"


@perdure.workflow
async def gathered() -> list[Any]:
    async def branch(n: int) -> int:
        total = n
        for _ in range(4):
            total = await add(total, 1)
        return total

    return list(await asyncio.gather(branch(0), try_it("card"), branch(100)))


@pytest.mark.parametrize("seed", range(8))
def test_branches_that_went_on_after_the_failure_keep_what_they_did(seed: int) -> None:
    operator = Operator(gathered, {"card"}, seed)
    done = {event.op for event in operator.world.log if event.type == EventType.STEP_COMPLETED}
    world = operator.retry()
    assert result(operator.last) == ("completed", [4, "card", 104])
    assert not set(world.outside.calls) & done
    check_whole_replay(world)


@perdure.workflow
async def wrapped() -> Any:
    try:
        return await try_it("card")
    except Declined as error:
        raise RuntimeError("no payment") from error


@perdure.workflow
async def raises_itself() -> Any:
    total = await add(1, 1)
    raise ValueError(f"do not like {total}")


def test_a_failure_that_was_wrapped_is_tried_again() -> None:
    operator = Operator(wrapped, {"card"})
    assert causes(operator.last)
    operator.retry()
    assert result(operator.last) == ("completed", "card")


def test_nothing_is_voided_when_the_body_itself_raised() -> None:
    operator = Operator(raises_itself, set())
    first = result(operator.last)
    assert causes(operator.last) is None
    world = operator.retry()
    assert result(operator.last) == first
    assert not world.outside.calls


@perdure.workflow
async def handled_before() -> Any:
    try:
        await try_it("first")
    except Declined:
        await add(1, 1)
    return await try_it("second")


def test_a_failure_that_the_body_handled_stays() -> None:
    operator = Operator(handled_before, {"first", "second"})
    world = operator.retry()
    assert result(operator.last) == ("completed", "second")
    assert world.outside.calls == {"2": 1}


@perdure.workflow
async def at_most_once() -> list[Any]:
    return [await once(1), await try_once("card"), await once(2)]


def test_at_most_once_steps_are_tried_again_only_because_an_operator_says_so() -> None:
    operator = Operator(at_most_once, {"card"})
    world = operator.retry()
    assert result(operator.last) == ("completed", [3, "card", 6])
    assert world.outside.calls == {"1": 1, "2": 1}
    intents = [(event.op, event.attempt) for event in world.log if event.type == EventType.STEP_INTENT]
    assert intents == [("0", 1), ("1", 1), ("1", 2), ("2", 1)]


def test_an_interrupted_attempt_of_an_at_most_once_step_is_tried_again_by_a_retry() -> None:
    world = World(at_most_once)
    world.execute()
    intent = next(event for event in world.log if event.type == EventType.STEP_INTENT and event.op == "1")
    operator = Operator(at_most_once, {"card"})
    operator.world = World(at_most_once)
    operator.last = operator.world.execute(world.log[: intent.seq])
    assert result(operator.last)[1] == "perdure.errors.StepInterrupted"
    operator.retry()
    assert result(operator.last) == ("completed", [3, "card", 6])


@pytest.mark.parametrize("workflow", [with_clean_up, siblings, gathered])
def test_a_crash_after_a_retry_changes_nothing(workflow: perdure.Workflow[..., Any]) -> None:
    operator = Operator(workflow, {"card", "bb"})
    begun = len(operator.world.log) + 2
    original = operator.retry()
    for cut in range(begun, len(original.log)):
        check_crash(original, cut, seed=cut, settled=workflow is not with_clean_up)


def test_a_failure_is_told_also_on_an_error_that_refuses_attributes() -> None:
    class Fussy(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    trail, error = FailureTrail(), Fussy()
    trail.sign(error, 7, "1.0")
    trail.born("1.1")
    assert trail.cause(error) == ((7,), "1.0", ("1.1",))
    assert trail.cause(ExceptionGroup("both", [ValueError(), error])) == ((7,), "1.0", ("1.1",))
    assert trail.cause(ValueError()) is None
