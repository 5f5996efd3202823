"""Declares workers dead whose lease has ended, so that their runs can be claimed.

Not a job in a queue and held by no leader: every worker does it, and a compare-and-set decides.

Whoever could not send heartbeats in time judges nobody: as a rule it was the database that was away, for everybody. It
waits until the others have had the time to be heard again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from perdure.runtime.lease import boot_time
from perdure.runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.host import Host

logger: logging.Logger = logging.getLogger("perdure.worker")
GRACE_S = 6.0
"""Within this time everybody has tried to connect again: an attempt to connect takes five seconds at most."""


class Sweeper(Service):
    """See the module."""

    def __init__(self, host: Host, want_claim: Callable[[], None]) -> None:
        super().__init__(host.loop, min(host.settings.lease_us / 4_000_000, 1.0))
        self._host = host
        self._want_claim = want_claim

    async def tick(self) -> None:
        """Mark the dead; then look for their runs."""
        host = self._host
        lease = host.lease
        if lease is not None and not lease.holds():
            return
        if lease is not None and boot_time() - lease.steady_since < min(GRACE_S, host.settings.lease_us / 1_000_000):
            return
        dead = await host.reader.call(host.loop, host.store.sweep)
        for worker_id in dead:
            logger.warning("worker %s is dead: its lease ended; its runs are taken over", worker_id)
        if dead:
            self._want_claim()
