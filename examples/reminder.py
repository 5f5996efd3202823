"""A reminder: sleeping durably costs a row in the database, nothing else, and survives restarts.

Stop it with Ctrl-C while it waits and start it again: it goes on where it was, and wakes at the time it had planned.
Usage: python reminder.py [PAUSE], for instance 3s or 1d.
"""

from __future__ import annotations

import asyncio
import sys

import perdure

REMINDERS = 2


@perdure.step
async def is_paid(invoice: str, reminders: int) -> bool:
    print(f"looking whether {invoice} is paid")
    return reminders == REMINDERS  # they pay when they have been asked often enough


@perdure.step(retry=perdure.Retry())
async def remind(invoice: str, number: int) -> None:
    print(f"reminder {number} for {invoice}")


@perdure.workflow
async def collect(invoice: str, pause: str) -> str:
    number = 0
    while not await is_paid(invoice, number):
        await perdure.sleep(pause)  # `asyncio.sleep` is durable in a workflow, too
        number += 1
        await remind(invoice, number)
        perdure.publish("reminders", number)  # read it from anywhere: await run.value("reminders")
    return f"{invoice} was paid after {number} reminders"


async def main(pause: str) -> None:
    async with perdure.Engine("sqlite:///reminders.db", [collect]) as engine:
        run = await engine.start(collect, "invoice-7", pause, id="invoice-7")
        print(f"run {run.id} is under way")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "1s"))
