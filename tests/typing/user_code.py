"""What a user's type checker makes of Perdure. Checked by mypy and pyright, never run: see test_user_code.py.

A line with an ignore must be refused by both checkers, which complain of an ignore that is not needed.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, assert_type

import perdure


@perdure.step
async def reserve(order: str, quantity: int = 1) -> list[str]:
    return [order] * quantity


@perdure.step
def weigh(order: str) -> float:
    return float(len(order))


@perdure.step(retry=perdure.Retry(attempts=3), timeout="5s", mode="at_most_once")
async def charge(order: str, amount: int) -> bool:
    return amount > 0 and bool(order)


@perdure.step(name="label", timeout=timedelta(seconds=1), durability="ahead")
def label(order: str) -> bytes:
    return order.encode()


@perdure.workflow
async def ship(order: str, amount: int) -> dict[str, float]:
    coroutine = reserve(order)
    assert_type(await coroutine, list[str])
    assert_type(await reserve(order, quantity=2), list[str])
    assert_type(await reserve.aio(order), list[str])
    assert_type(await weigh.aio(order), float)
    assert_type(await charge(order, amount), bool)
    assert_type(await label.aio(order), bytes)
    await reserve(order, "many")  # type: ignore[arg-type]
    await charge(order)  # type: ignore[call-arg]
    await label.aio(order, 1)  # type: ignore[call-arg]
    return {order: await weigh.aio(order)}


@perdure.workflow(name="audit", version="2")
def audit(order: str) -> int:
    assert_type(weigh(order), float)
    assert_type(weigh.blocking(order), float)
    assert_type(reserve.blocking(order, 3), list[str])
    assert_type(charge.blocking(order, 3), bool)
    weigh(3)  # type: ignore[arg-type]
    reserve.blocking()  # type: ignore[call-arg]
    return len(order)


async def client(engine: perdure.Engine) -> None:
    assert_type(await ship("a", 1), dict[str, float])
    assert_type(audit("a"), int)
    assert_type(ship.name, str)

    assert_type(await engine.start(ship, "a", 1, id="a", tags={"shop": "x"}), perdure.Run[dict[str, float]])
    assert_type(await engine.start(audit, "a"), perdure.Run[int])
    assert_type(await engine.start("ship", "a", 1), perdure.Run[Any])
    assert_type(await engine.run(ship, "a", 1, timeout="1m"), dict[str, float])
    assert_type(await engine.run(audit, "a"), int)
    assert_type(await engine.run("ship", "a", 1), Any)

    run = await engine.start(ship, "a", 1)
    assert_type(await run.result(timeout="1m"), dict[str, float])
    assert_type(await run.status(), perdure.Status)
    assert_type(await run.history(), list[perdure.Event])
    assert_type(await run.info(), perdure.RunInfo)
    assert_type(await run.value("eta"), Any)
    assert_type(await run.cancel(reason="no stock"), bool)

    assert_type(engine.get("a"), perdure.Run[Any])
    assert_type(engine.list(status="failed", limit=10), AsyncIterator[perdure.RunInfo])
    assert_type(await engine.cancel("a", reason="no stock"), bool)
    assert_type(await engine.retry("a", actor="me"), str)
    await engine.purge("a")
    await engine.start(ship, "a", 1, priority="high")  # type: ignore[call-overload]
    await engine.start(3)  # type: ignore[call-overload]
    engine.list(stauts="failed")  # type: ignore[call-arg]


def blocking_client(engine: perdure.SyncEngine) -> None:
    assert_type(engine.start(ship, "a", 1, id="a"), perdure.SyncRun[dict[str, float]])
    assert_type(engine.start(audit, "a"), perdure.SyncRun[int])
    assert_type(engine.start("ship", "a", 1), perdure.SyncRun[Any])
    assert_type(engine.run(ship, "a", 1), dict[str, float])
    assert_type(engine.run(audit, "a"), int)

    run = engine.start(ship, "a", 1)
    assert_type(run.result("1m"), dict[str, float])
    assert_type(run.status(), perdure.Status)
    assert_type(run.history(), list[perdure.Event])
    assert_type(run.info(), perdure.RunInfo)
    assert_type(run.cancel(), bool)

    assert_type(engine.get("a"), perdure.SyncRun[Any])
    assert_type(engine.list(status="failed"), Iterator[perdure.RunInfo])
    assert_type(engine.cancel("a"), bool)
    assert_type(engine.retry("a"), str)
    engine.purge("a")
    engine.start(ship, "a", 1, priority="high")  # type: ignore[call-overload]
    engine.list(stauts="failed")  # type: ignore[call-arg]


def wider(engine: perdure.SyncEngine) -> None:
    plain: perdure.SyncRun[object] = engine.start(audit, "a")
    step: perdure.SyncStep[[str], object] = weigh
    print(plain, step, engine.run(ship, "a", 1))
