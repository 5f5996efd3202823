"""A step at most once: for effects without an idempotency key, where twice is worse than not at all.

``python at_most_once.py crash`` dies while it sends. Run it again without the word: the message is not sent a second
time; the workflow is told that the attempt was interrupted, and finds out what happened.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import perdure

SENT = Path("sent.txt")  # stands for the provider of text messages, which knows no keys


@perdure.step(mode="at_most_once")
def send(number: str, text: str) -> str:
    with SENT.open("a", encoding="utf-8") as sent:
        sent.write(f"{number}: {text}\n")
    if "crash" in sys.argv:
        os._exit(1)  # the power fails after the message left and before anybody knows
    return "sent"


@perdure.step
def look(number: str) -> bool:
    """Ask the provider whether a message to this number has left."""
    return SENT.exists() and number in SENT.read_text(encoding="utf-8")


@perdure.workflow
async def tell(number: str, text: str) -> str:
    try:
        return await send.aio(number, text)
    except perdure.StepInterrupted:
        return "sent, as the provider says" if await look.aio(number) else "not sent, please call them"


async def main() -> None:
    # A short lease, so that the second process need not wait long for the first one's run.
    async with perdure.Engine("sqlite:///messages.db", [tell], lease="1s") as engine:
        print(await engine.run(tell, "+4712345678", "Your parcel is here.", id="message-1"))


if __name__ == "__main__":
    asyncio.run(main())
