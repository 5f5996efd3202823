"""Workflows that the tests of the command line run."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import perdure


@dataclass
class Order:
    sku: str
    count: int = 1


def tell(text: str) -> None:
    os.write(1, f"{text} {os.getpid()}\n".encode())


@perdure.step
async def pack(sku: str, count: int) -> str:
    return f"{count} x {sku}"


@perdure.step
async def note(file: str, line: str, pause: float = 0.0) -> None:
    tell(f"began {line}")
    await asyncio.sleep(pause)
    with Path(file).open("a") as sink:
        sink.write(f"{line}\n")


@perdure.step
def hold(seconds: float) -> None:
    tell("holding")
    threading.Event().wait(seconds)


@perdure.step
async def stubborn() -> None:
    tell("stubborn")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            tell("not now")


@perdure.step(retry=perdure.Retry(attempts=3, initial="1h"))
async def refuse(why: str) -> None:
    raise ValueError(why)


@perdure.step
async def fail_until(file: str) -> str:
    if not Path(file).exists():
        raise FileNotFoundError(file)
    return "found"


@perdure.workflow
async def fulfil(order: Order) -> dict[str, str]:
    packed = await pack(order.sku, order.count)
    perdure.checkpoint("packed", {"parcel": packed})
    perdure.publish("progress", 0.5)
    return {"parcel": packed}


@perdure.workflow
async def add(left: int, right: int = 1) -> int:
    return left + right


@perdure.workflow
async def clashing(a: int = 0, id: str = "", queue: str = "") -> str:
    return f"{a} {id} {queue}"


@perdure.workflow
async def boom(text: str = "boom") -> None:
    raise ValueError(text)


@perdure.workflow
async def named(name: str, text: str) -> str:
    perdure.checkpoint(name, text)
    perdure.publish(name, text)
    return text


@perdure.workflow
async def lock() -> dict[str, dict[str, object]]:
    return {"opts": {"lock": threading.Lock()}}


@perdure.workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@perdure.workflow
async def sleeper(seconds: float = 3600) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@perdure.workflow
async def retrying(why: str = "no\nway") -> None:
    await refuse(why)


@perdure.workflow
async def repaired(file: str) -> str:
    first = await pack("a", 1)
    return f"{first}, {await fail_until(file)}"


@perdure.workflow
async def noting(file: str, line: str, pause: float = 0.0) -> str:
    await note(file, line, pause)
    return line


@perdure.workflow
async def holding(seconds: float = 60) -> str:
    await hold.aio(seconds)
    return "held"


@perdure.workflow
async def never() -> None:
    await stubborn()
