"""Replay a recorded run from every crash point, and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import perdure
from perdure.model.event import Event
from perdure.model.status import TERMINAL, EventType, Status
from perdure.runtime.history import summarise
from tests.kernel.outside import Outside
from tests.kernel.world import World, result

ANSWERS = {
    EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.TIMER_FIRED, EventType.CHECKPOINT_REACHED,
    EventType.VALUE_PUBLISHED, EventType.PATCH_TAKEN,
}  # fmt: skip


def shape(log: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """Count what was answered, whatever the order and whoever owned the run."""
    return Counter((event.op, event.kind, event.name, event.type) for event in log if event.type in ANSWERS)


def answers(log: Sequence[Event]) -> list[str | None]:
    """Give the operations with an answer that no retry has taken back."""
    summary = summarise(log)
    taken_back = summary.voided | summary.doubtful
    return [event.op for event in log if event.type in ANSWERS and event.seq not in taken_back]


def answered(log: Sequence[Event]) -> set[str | None]:
    return set(answers(log))


def whole(world: World) -> list[Event]:
    """Give the log without its last event: all that a replay has to go by."""
    assert world.log[-1].state
    return world.log[:-1]


def record(workflow: perdure.Workflow[..., Any], seed: int = 0, *, args: Sequence[Any] = (), **options: Any) -> World:
    world = World(workflow, args, seed=seed, **options)
    world.execute()
    return world


def again(original: World, prefix: Sequence[Event], seed: int, **options: Any) -> World:
    """Go on from a prefix of a log in a fresh world, where everything takes another time."""
    outside = Outside(seed, original.outside.slowest_s)
    world = World(original.workflow, original.args, run_id=original.run_id, outside=outside, **options)
    world.execute(prefix)
    return world


def check_same_view(original: World, replayed: World, upto: int) -> None:
    """After each event the replayed body had seen the same, waited for the same, at the same time."""
    for seq in range(2, upto + 1):
        if seq in original.snapshots:
            assert replayed.snapshots[seq] == original.snapshots[seq], f"after event {seq}: {original.log[seq - 1]}"


def check_whole_replay(original: World) -> World:
    """Replay the whole log: the same end, the same view after every event, and no recorded step called."""
    log = whole(original)
    replayed = again(original, log, seed=-1)
    assert result(replayed.log[-1]) == result(original.log[-1])
    check_same_view(original, replayed, len(log))
    called_again = {op for op in replayed.outside.calls if op in answered(log)}
    assert not called_again
    return replayed


def check_crash(original: World, cut: int, seed: int, *, settled: bool) -> World:
    """Crash after event ``cut`` and go on elsewhere."""
    prefix = original.log[:cut]
    world = again(original, prefix, seed)
    check_same_view(original, world, cut)
    had = answered(prefix)
    assert not [op for op in world.outside.calls if op in had], "a recorded step was called again"
    assert Status(world.log[-1].state.partition(">")[2]) in TERMINAL, result(world.log[-1])  # type: ignore[union-attr]
    twice = [key for key, n in Counter(answers(world.log)).items() if n > 1]
    assert not twice, f"answered twice: {twice}"
    if settled:
        assert result(world.log[-1]) == result(original.log[-1])
        assert shape(world.log) == shape(original.log)
    else:
        check_whole_replay(world)
    return world


def check_everywhere(
    workflow: perdure.Workflow[..., Any], seed: int, *, settled: bool, every: int = 1, args: Sequence[Any] = ()
) -> World:
    """Record a run, replay it whole, and crash it after each event (or each ``every``-th)."""
    original = record(workflow, seed, args=args)
    assert result(original.log[-1])[0] == "completed", result(original.log[-1])
    check_whole_replay(original)
    for cut in range(1 + seed % every, len(original.log), every):
        check_crash(original, cut, seed + cut, settled=settled)
    return original
