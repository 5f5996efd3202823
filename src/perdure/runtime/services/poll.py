"""Notices what other processes left: due runs, messages, ended runs that somebody here waits for.

A cheap hint of the store is looked at often; the full look happens every ``poll_us`` whatever the hint says, unless the
store knows that there is nothing to be found yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.host import Host


class Poll(Service):
    """See the module."""

    def __init__(self, host: Host, worker_id: Callable[[], str], want_claim: Callable[[], None]) -> None:
        settings = host.settings
        super().__init__(host.loop, settings.hint_us / 1_000_000)
        self._host = host
        self._worker_id = worker_id
        self._want_claim = want_claim
        self._rounds = max(1, settings.poll_us // settings.hint_us)
        self._n = 0
        self._seen = -1

    async def tick(self) -> None:
        """Look at the hint; look at everything when it says so, or when it is time."""
        self._n += 1
        host = self._host
        count = host.store.change_count()
        if count == self._seen:
            if self._n % self._rounds:
                return
            quiet = host.now() < host.store.quiet_until()
        else:
            quiet = False
        self._seen = count
        if not quiet:
            self._want_claim()
        if host.runs:
            resident = {run.id for run in host.runs.values() if run.settled_in}
            owned = await host.reader.call(host.loop, host.store.owned, self._worker_id())
            for run_id, (epoch, inbox_n) in owned.items():
                run = host.runs.get(run_id) if run_id in resident or inbox_n else None
                if run is not None and run.recorder.epoch == epoch and inbox_n > run.inbox_seen:
                    run.look_at_inbox()
