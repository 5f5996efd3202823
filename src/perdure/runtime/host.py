"""What a resident run needs from the process around it."""

from __future__ import annotations

import asyncio
import logging
import sys
from random import random
from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import SourceChangedOnDisk
from perdure.kernel.execution import Execution
from perdure.kernel.step_run import StepRun, executed_by
from perdure.model.status import TERMINAL, Status
from perdure.runtime.bridge import Bridge
from perdure.runtime.carried import NOTHING, Carried, frozen
from perdure.runtime.eager import Starter
from perdure.runtime.ids import CommitIds
from perdure.runtime.threads import ThreadPool
from perdure.runtime.turns import Turns
from perdure.runtime.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.codec.base import Codec
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.kernel.frozen import Frozen
    from perdure.model.cache import Cache
    from perdure.model.event import Event
    from perdure.model.run import Message, RunRow
    from perdure.model.write import Change
    from perdure.runtime.lease import Lease
    from perdure.runtime.recorder import Recorder
    from perdure.runtime.registry import StepRegistry, WorkflowRegistry
    from perdure.runtime.settings import Settings
    from perdure.store.base import Store
    from perdure.store.thread import StoreThread
    from perdure.store.writer import Writer


class Guest(Protocol):
    """What the process asks of a run that resides in it."""

    id: str
    row: RunRow
    started: Event
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    definition: WorkflowDefinition
    recorder: Recorder
    inbox_seen: int
    settled_in: bool
    idle: bool
    gone: bool
    leaving: bool

    @property
    def next_wake(self) -> int | None:
        """When it has something to do next, while it is idle."""
        ...

    def hold(self, change: int) -> None:
        """Hold deliveries (+1), or let go of one hold (-1)."""
        ...

    def look_at_inbox(self) -> None:
        """Take in the messages that wait."""
        ...

    def take_messages(self, messages: list[Message]) -> None:
        """Record messages from outside."""
        ...

    def evict(self) -> None:
        """Leave memory, if idle."""
        ...

    def stop_starting(self) -> None:
        """Start nothing more; leave as soon as nothing is under way."""
        ...

    def hand_back(self, reason: str) -> None:
        """Leave now, for whoever claims it next."""
        ...

    def drop(self, reason: str) -> None:
        """Leave without a trace: it is somebody else's."""
        ...


class Host:
    """The resident runs of one worker, and the services they share."""

    logger: logging.Logger = logging.getLogger("perdure.run")
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    def __init__(
        self, *, store: Store, writer: Writer, reader: StoreThread, loop: asyncio.AbstractEventLoop, settings: Settings,
        codec: Codec, workflows: WorkflowRegistry, steps: StepRegistry, waiters: Waiters, commit_ids: CommitIds,
        definitions: Cache, carried: Carried = NOTHING,
    ) -> None:  # fmt: skip
        self.store = store
        self.writer = writer
        self.reader = reader
        self.loop = loop
        self.settings = settings
        self.codec = codec
        self.workflows = workflows
        self.carried: Carried = carried
        self._frozen: dict[str, Frozen] = {}
        self.steps = steps
        self.waiters = waiters
        waiters.is_here = self._is_here
        self.commit_ids = commit_ids
        self.definitions = definitions
        self.now: Callable[[], int] = store.now
        self.luck = random
        self.threads: ThreadPool = ThreadPool("perdure-step", settings.threads, loop)
        self.runs: dict[str, Guest] = {}
        self.idle: dict[str, tuple[Guest, int]] = {}
        """Idle runs and since when, oldest first."""
        self.starter: Starter = Starter(loop)
        self.turns: Turns = Turns(loop)
        writer.told = self.turns.take
        self.reserved = 0
        """Runs that are being created here and will be active once they are recorded."""
        self.lease: Lease | None = None
        """Until its deadline effects may be started; without one, always."""
        self.on_room: Callable[[], None] = _nothing
        """Called when a run has left or become idle: there may be room for another."""
        self.on_created: Callable[[], None] = _nothing
        """Called when a run was started from here that anybody may claim."""
        self.on_message: Callable[[str], None] = _ignored
        """Called when a message was sent to a run from here."""
        self.queue_of_step: Callable[[str], str | None] | None = None
        """Names the queue that a step of a name is routed to; None where no step is."""
        self._blocked: list[Callable[[], None]] = []

    @property
    def free(self) -> int:
        """How many more runs may be active."""
        return self.settings.concurrency - self.reserved - (len(self.runs) - len(self.idle))

    def _is_here(self, run_id: str) -> bool:
        return run_id in self.runs

    # -- for runs ------------------------------------------------------------------------------------------------

    def build(self, run: Guest) -> Execution:
        """Make the body of a run, not yet begun."""
        workflow = self.workflows[run.row.workflow]
        definition = run.definition = executed_by(workflow, run.started)
        function = definition.function
        if definition.is_async:

            def main() -> Any:
                args, kwargs = run.arguments
                return function(*args, **kwargs)

            execution = Execution(run.id, main, self.codec, self.steps, run.row)
            execution.frozen = self.frozen(workflow)
            if isinstance(definition, StepRun):
                execution.caller = definition.caller
            return execution

        def body() -> Any:
            args, kwargs = run.arguments
            return function(*args, **kwargs)

        bridge = Bridge(body, self.loop, run.hold)
        execution = Execution(run.id, bridge.drive, self.codec, self.steps, run.row)
        execution.frozen = self.frozen(definition)
        bridge.attach(execution)
        return execution

    def frozen(self, definition: WorkflowDefinition) -> Frozen:
        """Return what bodies and steps of a workflow may read that is frozen with its version."""
        found = self._frozen.get(definition.name)
        if found is None:
            found = self._frozen[definition.name] = frozen(definition, self.carried)
        return found

    def is_displaced_by(self, error: BaseException) -> bool:
        """Whether an error says that other code was put in the place of what is loaded here. It says nothing of a run.

        If so, nothing more is claimed, since no run may begin on it. Runs of the versions that were carried here go on
        where their code is: in version hosts, if need be.
        """
        if not isinstance(error, SourceChangedOnDisk):
            return False
        if not self.carried.displaced:
            self.logger.error("%s Its runs go on in version hosts.", error)
            self.carried = self.carried._replace(versions={}, displaced=True)
        return True

    def left(self, run: Guest) -> None:
        """Forget a run that is no longer here."""
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self.waiters.tell(run.id, None)  # whoever still waits has to look elsewhere now
        self.idle.pop(run.id, None)
        self.on_room()

    def changed(self, run: Guest, change: Change, last: Event) -> None:
        """Tell who waits that the run has left this worker's hands."""
        if change.after in TERMINAL or change.after == Status.PARKED:
            self.waiters.tell(run.id, (run.row, last))
        if change.tell is not None:
            self.on_message(change.tell.run_id)

    def idleness(self, run: Guest) -> None:
        """Note that a run has become idle, or active again."""
        if run.idle:
            self.idle[run.id] = (run, self.now())
            self.on_room()
        else:
            self.idle.pop(run.id, None)

    def fetch_inbox(self, run: Guest) -> None:
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

    def when_lease_holds(self, call: Callable[[], None]) -> None:
        """Call back once a heartbeat has succeeded."""
        self._blocked.append(call)

    def lease_extended(self) -> None:
        """Let go on what waited for a heartbeat."""
        blocked, self._blocked = self._blocked, []
        for call in blocked:
            call()


def _nothing() -> None:
    pass


def _ignored(run_id: str) -> None:
    pass
