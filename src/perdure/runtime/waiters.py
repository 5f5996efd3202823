"""Who waits for a run to end, in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.model.event import Event


class Waiters:
    """Futures by run id, answered with the run's last event."""

    def __init__(self) -> None:
        self._futures: dict[str, set[asyncio.Future[Event | None]]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    @property
    def run_ids(self) -> list[str]:
        """Runs that somebody waits for."""
        return list(self._futures)

    async def wait(self, run_id: str) -> Event | None:
        """Wait until `tell` is called for the run; giving up harms nobody else."""
        future: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        waiting = self._futures.setdefault(run_id, set())
        waiting.add(future)
        try:
            return await future
        finally:
            waiting.discard(future)
            if not waiting and self._futures.get(run_id) is waiting:
                del self._futures[run_id]

    def fail(self, error: Exception) -> None:
        """Raise ``error`` for everybody who waits for any run."""
        waiting, self._futures = self._futures, {}
        for future in {future for futures in waiting.values() for future in futures}:
            if not future.done():
                future.set_exception(error)

    def tell(self, run_id: str, event: Event | None) -> None:
        """Wake everybody who waits for the run."""
        for future in self._futures.pop(run_id, ()):
            if not future.done():
                future.set_result(event)
