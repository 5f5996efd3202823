"""A worker of the shop that is deployed in a folder: ``python worker.py URL FOLDER``. It ends on SIGTERM."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
import sys

import perdure


async def main(url: str, folder: str, *options: str) -> None:
    """Work until told to stop. Options are ``name=value``."""
    given = dict(option.split("=") for option in options)
    sys.path.insert(0, folder)
    shop = importlib.import_module("shop")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with perdure.Engine(
        url,
        [shop],
        queues=given.get("queues", "default").split("+"),
        routes=dict([given["route"].split(":")]) if "route" in given else None,
        concurrency=30,
        lease="1.5s",
        poll="100ms",
        grace="2s",
        max_deaths=50,
        foreign_delay=given.get("foreign_delay", "300ms"),
        environments=given.get("environments", "current"),
        max_hosts=int(given.get("max_hosts", 4)),
        host_idle=float(given.get("host_idle", 30)),
    ):
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
