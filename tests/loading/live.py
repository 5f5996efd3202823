"""A worker whose files are swapped while it runs: opens an engine on the database in its arguments, and waits."""

from __future__ import annotations

import asyncio
import sys

import perdure

sys.path.insert(0, sys.argv[2])
from shop import flow  # type: ignore[import-not-found]


async def main() -> None:
    async with perdure.Engine(sys.argv[1], [flow.order], poll="50ms"):
        print("open", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
