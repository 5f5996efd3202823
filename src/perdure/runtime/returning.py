"""Gives back runs that this worker owns in the database and does not execute.

Two ways lead there: several runs that may kill their worker were claimed at once, and only one may be executed at a
time; or the answer to a claim or an append was lost. A run that is given back does not count as one that killed its
worker.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import StoreError
from perdure.model.event import Draft, seal, tail_of
from perdure.model.status import EventType, Status
from perdure.model.write import Append, Change, Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from perdure.model.event import Event
    from perdure.model.write import Outcome
    from perdure.runtime.host import Host

logger: logging.Logger = logging.getLogger("perdure.worker")
_SOON_S = 0.1
"""Between two looks after an answer was lost."""


class Returns:
    """Finds such runs and gives them back. All methods run on the engine's event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._missing: dict[str, int] = {}

    async def find_lost(self, worker_id: str, known: Callable[[], Collection[str]]) -> None:
        """Look for what was claimed and not told, because the answer was lost: heartbeats are far apart.

        No claim may be under way.

        Args:
            worker_id: who claimed.
            known: returns what is here or on the way.
        """
        host = self._host
        for _ in range(2):
            await asyncio.sleep(_SOON_S)
            with suppress(StoreError):
                self.reconcile(await host.reader.call(host.loop, host.store.owned, worker_id), known())

    def give_back(self, last: Event, reason: str) -> asyncio.Future[None]:
        """Let anybody claim a run whose log ends in ``last`` and which that event's epoch owns.

        Returns a future that is done once that is recorded, or refused: somebody else was faster, which is as good.
        """
        now, epoch = self._host.now(), last.epoch
        detail = msgspec.json.encode({"wake_at": now, "reason": reason})
        draft = Draft(EventType.RUN_RELEASED, now, state=f"{Status.RUNNING}>{Status.PENDING}", detail=detail)
        events = seal(last.run_id, tail_of(last), (draft,), epoch, self._host.commit_ids.take())
        change = Change(Status.RUNNING, epoch, Status.PENDING, epoch, None, now, 0, None, now)
        done = _Done(self._host)
        self._host.writer.submit(Append(last.run_id, events, change), done)
        return done.future

    def reconcile(self, owned: dict[str, tuple[int, int]], known: Collection[str]) -> None:
        """Give back what the database said twice that we own, while we know nothing of it.

        Args:
            owned: what the database says now.
            known: runs that are here, or on the way.
        """
        missing = {run_id: epoch for run_id, (epoch, _) in owned.items() if run_id not in known}
        for run_id, epoch in missing.items():
            if self._missing.get(run_id) == epoch:
                self._look(run_id, epoch)
        self._missing = missing

    def _look(self, run_id: str, epoch: int) -> None:
        host = self._host

        def found(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                return  # the next heartbeat tells of it again
            for last in done.result():
                if last.epoch == epoch and run_id not in host.runs:
                    logger.warning("run %s is ours in the database and is not here: it is given back", run_id)
                    self.give_back(last, "its worker had lost sight of it")

        host.reader.call(host.loop, host.store.load, run_id, -1).add_done_callback(found)


class _Done:
    """Waits for one hand-back."""

    __slots__ = ("_host", "future")

    def __init__(self, host: Host) -> None:
        self._host = host
        self.future: asyncio.Future[None] = host.loop.create_future()

    def settled(self, write: Any, outcome: Outcome) -> None:  # noqa: ARG002 - which one it was makes no difference
        """Take the writer's answer."""
        if not self.future.done():
            self.future.set_result(None)
        if isinstance(outcome, Committed):
            self._host.on_room()
