"""What a resident run needs from the process around it."""

from __future__ import annotations

import logging
import sys
from math import inf
from random import random
from typing import TYPE_CHECKING, Any

from perdure.kernel.execution import Execution
from perdure.model.status import TERMINAL, Status
from perdure.runtime.bridge import Bridge
from perdure.runtime.ids import CommitIds
from perdure.runtime.threads import ThreadPool
from perdure.runtime.waiters import Waiters

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from perdure.codec.base import Codec
    from perdure.kernel.kinds.step import StepOperation
    from perdure.model.event import Event
    from perdure.model.write import Change
    from perdure.runtime.attempt import Attempts
    from perdure.runtime.lease import Lease
    from perdure.runtime.registry import StepRegistry, WorkflowRegistry
    from perdure.runtime.resident import ResidentRun
    from perdure.runtime.settings import Settings
    from perdure.store.base import Store
    from perdure.store.writer import StoreThread, Writer

BEAT_EVERY_US = 1_000_000
"""A step's heartbeat detail is recorded at most this often."""


class Host:
    """The resident runs of one worker, and the services they share."""

    def __init__(
        self, *, store: Store, writer: Writer, reader: StoreThread, loop: asyncio.AbstractEventLoop, settings: Settings,
        codec: Codec, workflows: WorkflowRegistry, steps: StepRegistry, waiters: Waiters, commit_ids: CommitIds,
    ) -> None:  # fmt: skip
        self.store = store
        self.writer = writer
        self.reader = reader
        self.loop = loop
        self.settings = settings
        self.codec = codec
        self.workflows = workflows
        self.steps = steps
        self.waiters = waiters
        waiters.is_here = self._is_here
        self.commit_ids = commit_ids
        self.logger = logging.getLogger("perdure.run")
        self.python = f"{sys.version_info.major}.{sys.version_info.minor}"
        self.now = store.now
        self.luck = random
        self.threads = ThreadPool("perdure-step", settings.threads, loop)
        self.runs: dict[str, ResidentRun] = {}
        self.idle: dict[str, tuple[ResidentRun, int]] = {}
        """Idle runs and since when, oldest first."""
        self.plain_tasks = loop.get_task_factory() is None
        self.reserved = 0
        """Runs that are being created here and will be active once they are recorded."""
        self.lease: Lease | None = None
        self.on_room: Callable[[], None] = _nothing
        """Called when a run has left or become idle: there may be room for another."""
        self._blocked: list[Callable[[], None]] = []
        self._beats: dict[tuple[str, str], int] = {}

    @property
    def free(self) -> int:
        """How many more runs may be active."""
        return self.settings.concurrency - self.reserved - (len(self.runs) - len(self.idle))

    def _is_here(self, run_id: str) -> bool:
        return run_id in self.runs

    # -- for runs ------------------------------------------------------------------------------------------------

    def build(self, run: ResidentRun) -> Execution:
        """Make the body of a run, not yet begun."""
        definition = self.workflows[run.row.workflow]
        run.definition = definition
        function = definition.function
        if definition.is_async:

            def main() -> Any:
                args, kwargs = run.arguments
                return function(*args, **kwargs)

            return Execution(run.id, main, self.codec, self.steps, run.row)

        def body() -> Any:
            args, kwargs = run.arguments
            return function(*args, **kwargs)

        bridge = Bridge(body, self.loop, run.hold)
        execution = Execution(run.id, bridge.drive, self.codec, self.steps, run.row)
        bridge.attach(execution)
        return execution

    def left(self, run: ResidentRun) -> None:
        """Forget a run that is no longer here."""
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self.waiters.tell(run.id, None)  # whoever still waits has to look elsewhere now
        self.idle.pop(run.id, None)
        if self._beats:
            self._beats = {key: at for key, at in self._beats.items() if key[0] != run.id}
        self.on_room()

    def changed(self, run: ResidentRun, change: Change, last: Event) -> None:
        """Tell who waits that the run has left this worker's hands."""
        if change.after in TERMINAL or change.after == Status.PARKED:
            self.waiters.tell(run.id, (run.row, last))

    def idleness(self, run: ResidentRun) -> None:
        """Note that a run has become idle, or active again."""
        if run.idle:
            self.idle[run.id] = (run, self.now())
            self.on_room()
        else:
            self.idle.pop(run.id, None)

    def fetch_inbox(self, run: ResidentRun) -> None:
        """Read a run's messages and hand them over."""
        future = self.reader.call(self.loop, self.store.inbox, run.id)

        def arrived(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or run.gone:
                return
            if done.exception() is not None:
                self.loop.call_later(0.2, self.fetch_inbox, run)
            else:
                run.take_messages(done.result())

        future.add_done_callback(arrived)

    @property
    def effects_until(self) -> float:
        """Until when effects may be started, by `boot_time`."""
        return self.lease.deadline if self.lease is not None else inf

    def when_lease_holds(self, call: Callable[[], None]) -> None:
        """Call back once a heartbeat has succeeded."""
        self._blocked.append(call)

    def lease_extended(self) -> None:
        """Let go on what waited for a heartbeat."""
        blocked, self._blocked = self._blocked, []
        for call in blocked:
            call()

    def heartbeat(self, attempts: Attempts, operation: StepOperation, number: int, payload: bytes) -> None:
        """Record a step's heartbeat detail, not too often. May be called from any thread."""
        key = (operation.run.run_id, operation.id)
        now = self.now()
        if now - self._beats.get(key, 0) < BEAT_EVERY_US:
            return
        self._beats[key] = now
        self.loop.call_soon_threadsafe(attempts.beat, operation, number, payload)


def _nothing() -> None:
    pass
