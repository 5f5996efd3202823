"""A worker of the demonstration: the process that gets killed.

Started as ``python -m perdure.demo.worker URL FOLDER``; the folder holds the ``shop.py`` that is deployed. It ends when
its standard input does.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

from perdure.api.engine import Engine
from perdure.demo.lifeline import until_parent_ends

LEASE = "1s"
MAX_DEATHS = 50
"""The demonstration kills far more often than a run that kills its own workers would be forgiven."""


async def main(url: str, folder: str) -> None:
    """Execute orders until the parent process ends."""
    sys.path.insert(0, folder)
    shop = importlib.import_module("shop")
    async with Engine(url, [shop], concurrency=16, lease=LEASE, grace="2s", poll="200ms", max_deaths=MAX_DEATHS):
        await until_parent_ends()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
