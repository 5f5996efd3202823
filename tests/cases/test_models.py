"""Real complaints about models that come back as something else, or no longer at all after a deploy."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import RunParked, Status, step, workflow
from tests.cases.conftest import World
from tests.cases.ledger import note
from tests.cases.models import Derived, Model, derived, model


@step
async def annotated(given: Model, other: Derived) -> tuple[Model, Derived]:
    note()
    return given, other


@step
async def bare(given, other):  # type: ignore[no-untyped-def]
    note()
    return [given, other]


@workflow
async def typed(given: Model, other: Derived) -> tuple[Model, Derived]:
    first, second = await annotated(given, other)
    assert (first, second) == (model(), derived())
    await asyncio.sleep(0.4)
    return await annotated(first, second)


async def test_case_ser_11(world: World) -> None:
    """A datetime field of a model comes back as a date, or the model is refused.

    A pydantic model and a dataclass as input, step result and result, annotated; recovered by another engine in
    between. Without an annotation they are stored under their type's name or refused at the step, never as something
    else. Source: temporalio/sdk-python#207, temporalio/sdk-python#126.
    """
    async with world.engine([typed], evict_after="50ms") as engine:
        run = await engine.start(typed, model(), derived(), id="r")
        await world.ledger.until("annotated")
    async with world.engine([typed, untyped]) as engine:
        found: Any = await engine.get("r").result(timeout=30)
        assert found == (model(), derived())
        assert type(found[0]) is Model
        assert found[0].at == model().at
        handle = await engine.start(untyped)
        found = await asyncio.gather(handle.result(timeout=30), return_exceptions=True)
        assert found == [True] or isinstance(found[0].__cause__, perdure.CodecError)
    assert world.ledger.count("annotated", run.id) == 2


@workflow
async def untyped() -> bool:
    return bool(await bare(model(), derived()) == [model(), derived()])


@dataclass
class Point:
    x: int


OldPoint = Point


@dataclass
class PointRequired:
    x: int
    y: int


@dataclass
class PointDefault:
    x: int
    y: int = 5


def deploy(kind: type[Any]) -> perdure.Workflow[Any, Any]:
    """Give the workflow as a deploy has it in which ``Point`` is ``kind``, and the step returns one."""
    kind.__name__ = kind.__qualname__ = "Point"
    sys.modules[__name__].Point = kind  # type: ignore[attr-defined]

    async def locate() -> Any:
        note()
        return OldPoint(3)

    locate.__annotations__["return"] = kind
    located = step(name="locate")(locate)

    async def flow() -> list[int]:
        point: Any = await located()
        await asyncio.sleep(0.3)
        return [point.x, getattr(point, "y", -1)]

    return workflow(name="versioned")(flow)


@workflow
async def bystander() -> str:
    return "well"


async def test_case_ver_04(world: World) -> None:
    """After a deploy that adds a required field, a result stored before cannot be decoded; the run retries for ever.

    The run is parked with the type, the field and the step; the step is not run again, other runs go on; after a
    deploy with a default, `retry` leads to success. Source: PostHog/posthog PR#56068.
    """
    async with world.engine([deploy(OldPoint)], evict_after="20ms") as engine:
        run: perdure.Run[Any] = await engine.start("versioned", id="r")
        await world.ledger.until("locate")
    async with world.engine([deploy(PointRequired), bystander]) as engine:
        with pytest.raises(RunParked, match="cannot be read") as caught:
            await engine.get(run.id).result(timeout=30)
        assert "y" in caught.value.reason
        assert "Point" in caught.value.reason
        assert "locate" in caught.value.reason
        assert await engine.run(bystander) == "well"
        assert await engine.get(run.id).status() == Status.PARKED
    async with world.engine([deploy(PointDefault)]) as engine:
        await engine.retry("r", reason="deployed", actor="operator")
        assert await engine.get("r").result(timeout=30) == [3, 5]
    assert world.ledger.count("locate") == 1
