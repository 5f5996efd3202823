"""Puts idle runs out of memory: a run that waits costs a row, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.runtime.service import Service

if TYPE_CHECKING:
    from perdure.runtime.host import Host


class Eviction(Service):
    """Evicts runs that have been idle long enough, and the longest idle ones when there are too many."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.loop, min(host.settings.evict_after_us / 4_000_000, 0.5))
        self._host = host

    async def tick(self) -> None:
        """Evict what is due to leave."""
        host = self._host
        before = host.now() - host.settings.evict_after_us
        surplus = len(host.idle) - host.settings.concurrency
        for run, since in list(host.idle.values()):
            if surplus <= 0 and since > before:
                return
            surplus -= 1
            soon = run.next_wake
            if soon is not None and soon - host.now() < host.settings.hint_us:
                continue
            run.evict()
