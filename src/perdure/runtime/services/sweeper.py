"""Declares workers dead whose lease has ended, so that their runs can be claimed.

Not a job in a queue and held by no leader: every worker does it, and a compare-and-set decides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from perdure.runtime.service import Service

if TYPE_CHECKING:
    from perdure.runtime.worker import Worker

logger = logging.getLogger("perdure.worker")


class Sweeper(Service):
    """See the module."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.host.loop, min(worker.host.settings.lease_us / 4_000_000, 1.0))
        self._worker = worker

    async def tick(self) -> None:
        """Mark the dead; then look for their runs."""
        host = self._worker.host
        dead = await host.reader.call(host.loop, host.store.sweep)
        for worker_id in dead:
            logger.warning("worker %s is dead: its lease ended; its runs are taken over", worker_id)
        if dead:
            self._worker.want_claim()
