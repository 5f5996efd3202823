"""A background service: started once, stopped once, and never able to bring its worker down."""

from __future__ import annotations

import asyncio
import logging

from perdure.errors import StoreError

logger: logging.Logger = logging.getLogger("perdure.worker")


class Service:
    """Calls `tick` every ``interval_s`` seconds until stopped. An error is logged and does not stop it.

    `start` may be called once; `stop` may be called before it, and twice.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    async def tick(self) -> None:
        """Do the work once."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._task = self._loop.create_task(self._run(), name=type(self).__name__)

    async def stop(self) -> None:
        """End, and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.tick()
            except StoreError as error:
                logger.debug("%s: %s", type(self).__name__, error)
            except Exception:
                logger.exception("%s failed; it goes on", type(self).__name__)
