"""A worker, a client, or both in one process, that run chains of steps until told to stop.

``python -m tests.faults.server.load ROLE URL LEDGER NAME OPTIONS``: options are those of `perdure.Engine`, in JSON, and
``lanes`` and ``steps``. Every step writes a line into the ledger when it begins; whoever starts runs says on standard
output when one was acknowledged and when its result was there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from typing import Any

import perdure

PAUSE_S = 0.01


class Ledger:
    """The outside: a file that the engine does not know."""

    file = -1
    name = ""

    @classmethod
    def note(cls, *words: object) -> None:
        """Append a line, in one write."""
        os.write(cls.file, (" ".join(map(str, (f"{time.monotonic():.4f}", cls.name, *words))) + "\n").encode())


@perdure.step
async def link(n: int) -> int:
    Ledger.note(perdure.step_info().run_id, n)
    await asyncio.sleep(PAUSE_S)
    return n + 1


@perdure.workflow
async def chain(steps: int) -> int:
    n = 0
    while n < steps:
        n = await link(n)
    return n


async def lane(engine: perdure.Engine, number: int, steps: int, stop: asyncio.Event) -> None:
    """Start one run after the other, and wait for each."""
    count = 0
    while not stop.is_set():
        count += 1
        run_id = f"{Ledger.name}-{number}-{count}"
        run = await engine.start(chain, steps, id=run_id)
        os.write(1, f"started {run_id}\n".encode())
        assert await run.result() == steps
        os.write(1, f"ended {run_id}\n".encode())


async def main(role: str, url: str, options: dict[str, Any]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lanes, steps = options.pop("lanes", 20), options.pop("steps", 10)
    async with perdure.Engine(url, [chain], worker=role != "client", name=Ledger.name, **options) as engine:
        print("ready", flush=True)
        if role == "worker":
            await stop.wait()
        else:
            await asyncio.gather(*(lane(engine, number, steps, stop) for number in range(lanes)))
    print("done", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s")
    _, role, url, path, name, options = sys.argv
    Ledger.file, Ledger.name = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), name
    asyncio.run(main(role, url, json.loads(options)))
