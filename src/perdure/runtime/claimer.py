"""Asks the store for due runs, each queue with its share, and looks again when a limit may let more of them go."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perdure.model.claim import Claimant, Claimed, ClaimRequest, Claims, decide, hand_over
from perdure.runtime.shares import Shares

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.runtime.host import Host
    from perdure.store.base import Decide

CLAIM_BATCH = 200


class Claimer:
    """The claims of one worker. All methods run on the engine's event loop.

    Attributes:
        backlog: whether the last claim took all it was allowed to.
        held: whether the last claim left runs because of a limit of their queue.
    """

    def __init__(self, host: Host, want_claim: Callable[[], None]) -> None:
        self._host = host
        self._want_claim = want_claim
        self._shares = Shares(host.settings.queues, host.settings.weights)
        self._timer: asyncio.TimerHandle | None = None
        self.backlog: bool = False
        self.held: bool = False

    async def claim(self, who: Claimant, only: str | None) -> list[Claimed]:
        """Claim as much as there is room for."""
        host = self._host
        limit = min(host.free, CLAIM_BATCH)
        queues, shares = self._shares.of(limit)
        codes = host.carried.codes(host.workflows)
        request = ClaimRequest(who.worker_id, queues, codes, limit, only=only, shares=shares)

        def judge(row: RunRow, recent: tuple[Event, ...], now: int) -> Claimed:
            if row.code not in codes:
                return hand_over(row, recent, now, host.commit_ids.take())
            version = host.carried.versions.get(row.workflow)
            binding = None if version is None else version.binding
            return decide(row, recent, who, now, host.commit_ids.take(), binding)

        answer = await self._ask(request, judge)
        taken = [claimed for claimed in answer.taken if not claimed.returned]
        self.backlog = len(taken) >= limit
        self.held = answer.held or len(taken) < len(answer.taken)
        if shares and only is None:
            by_queue = Counter(claimed.row.queue for claimed in taken)
            self._shares.count(dict(zip(queues, shares, strict=True)), by_queue)
        if answer.open_at is not None and self._timer is None:
            wait = max(answer.open_at - host.now(), 0) / 1_000_000
            self._timer = host.loop.call_later(wait, self._opened)
        return taken

    async def _ask(self, request: ClaimRequest, judge: Decide) -> Claims:
        """Claim on the loop's thread while there is a backlog and the store is quick, else on the reading thread."""
        host = self._host
        if self.backlog and host.store.capabilities.inline:
            claims = host.store.claim(request, judge, block=False)
            if claims is not None:
                return claims
        found: Claims = await host.reader.call(host.loop, host.store.claim, request, judge)
        return found

    def _opened(self) -> None:
        self._timer = None
        self._want_claim()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
