"""A worker process: ``python -m tests.cases.worker JSON``. SIGTERM and SIGINT stop it in good order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import perdure
from tests.cases import faults
from tests.cases.ledger import PLACE, WORKER, Ledger


async def main(asked: dict[str, Any]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    workflows = [import_module(name) for name in asked["workflows"]]
    engine = perdure.Engine(asked["url"], workflows, name=asked["name"], **asked["options"])
    if asked["fault"]:
        faults.arm(asked["fault"], Ledger(Path(os.environ[PLACE])))
    if asked["barrier"]:
        print("READY", flush=True)
        while not Path(asked["barrier"]).exists():
            await asyncio.sleep(0.002)
    await engine.open()
    if not asked["barrier"]:
        print("READY", flush=True)
    for run_id, name, given in asked["start"]:
        await engine.start(name, id=run_id, **given)
    if asked["start"]:
        print("STARTED", flush=True)
    if asked["client"]:
        stop.set()
    await stop.wait()
    await engine.close()
    print("STOPPED", flush=True)
    sys.stderr.flush()
    os._exit(0)  # a step that ignores its cancellation may still be under way


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    os.environ[WORKER] = request["name"]
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main(request))
