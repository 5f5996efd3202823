"""A recorded run, and what becomes of it: one workflow, and variants of its code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import perdure
from perdure.model.event import Event
from perdure.replay.check import Code, check
from perdure.replay.history import History, record
from perdure.replay.verdict import Verdict
from perdure.runtime.registry import StepRegistry
from tests.kernel.outside import enter, here
from tests.kernel.world import CODEC, World


def flow(body: Callable[..., Any]) -> perdure.Workflow[..., Any]:
    return perdure.workflow(name="flow")(body)


def lived(body: Callable[..., Any], *args: Any, seed: int = 0, broken: Sequence[str] = ()) -> World:
    before = here()
    world = World(flow(body), args, seed=seed)
    world.outside.broken.update(broken)
    world.execute()
    enter(before)  # steps that are called from now on are called by a check
    return world


def history_of(world: World, events: Sequence[Event] | None = None) -> History:
    return record(world.row(), world.log if events is None else events, CODEC)


def unfinished(world: World, upto: int = -1) -> History:
    """Give the history without its end."""
    return history_of(world, world.log[:upto])


def verdict(body: Callable[..., Any], history: History, **options: Any) -> Verdict:
    return check(history, Code(flow(body).definition, StepRegistry(), CODEC), **options).verdict
