"""A workflow of an application, and the same after a change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure


def note(item: str, what: str) -> str:
    """Write into the file that the item names, if it names one: a call is seen, in whatever process it is made."""
    if item.startswith("/"):
        with Path(item).open("a") as ledger:
            ledger.write(f"{what}\n")
    return f"{what}: {item}"


@perdure.step
async def take(item: str) -> str:
    return note(item, "taken")


@perdure.step
async def send(item: str) -> str:
    return note(item, "sent")


@perdure.step
async def look_at(item: str) -> str:
    return note(item, "looked at")


@perdure.workflow
async def order(item: str, pause: float = 0.0) -> str:
    await take(item)
    if pause:
        await asyncio.sleep(pause)
    return await send(item)


@perdure.workflow
def sync_order(item: str) -> str:
    take.blocking(item)
    return send.blocking(item)


@perdure.workflow(name="order")
async def order_with_check(item: str, pause: float = 0.0) -> str:
    await look_at(item)
    await take(item)
    if pause:
        await asyncio.sleep(pause)
    return await send(item)
