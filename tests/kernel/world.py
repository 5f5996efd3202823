"""A worker's inside on virtual time: real resident runs and real bodies, with a log instead of a database.

Time passes only when nothing else can happen, so an hour's sleep takes no time, and a seed decides how long each step
and each commit takes. The order of everything follows from the seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

import perdure
from perdure.codec.base import open_chain
from perdure.codec.exception import read_failure
from perdure.codec.signature import encode_call
from perdure.kernel.kinds.step import StepOperation
from perdure.model.cache import Cache
from perdure.model.event import EMPTY_TAIL, Draft, Event, Tail, broken_link, seal, tail_of
from perdure.model.run import Message, RunRow
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Append
from perdure.runtime.host import Host
from perdure.runtime.ids import CommitIds
from perdure.runtime.registry import StepRegistry, WorkflowRegistry
from perdure.runtime.resident import ResidentRun
from perdure.runtime.settings import Settings
from perdure.runtime.waiters import Waiters
from tests.kernel.outside import Outside, enter

EPOCH_US = 1_800_000_000_000_000
CODEC = open_chain(("json",))
PATIENCE_S = 40.0
LEAVING = {
    EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED, EventType.RUN_PARKED, EventType.RUN_WAITING,
    EventType.RUN_RELEASED,
}  # fmt: skip


class Stuck(Exception):
    """Nothing can happen any more, and the run is still there."""


class _Selector(selectors.DefaultSelector):
    """Lets virtual time pass, unless a thread is at work."""

    now = 0.0
    busy: Callable[[], bool] = staticmethod(lambda: False)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.busy():
            ready = super().select(PATIENCE_S)
            if not ready:
                raise Stuck("a thread does not come back")
            return ready
        if timeout is None:
            raise Stuck("nothing is due, and nobody is at work")
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.selector.now


class LogWriter:
    """Commits after a while that the seed decides. Refuses what a database would refuse."""

    crash = None
    told: Callable[[], None]

    def __init__(self, loop: VirtualLoop, outside: Outside, log: list[Event]) -> None:
        self._loop = loop
        self._outside = outside
        self.log = log
        self.commits = 0

    def submit(self, write: Append, submitter: Any) -> None:
        self.commits += 1
        self._loop.call_later(self._outside.latency(f"commit {self.commits}") / 8, self._settle, write, submitter)

    def _settle(self, write: Append, submitter: Any) -> None:
        tail = tail_of(self.log[-1])
        assert broken_link(write.run_id, tail, write.events) is None
        assert not write.change or write.events[-1].type in LEAVING
        self.log.extend(write.events)
        submitter.settled(write, COMMITTED)
        self.told()


class Inbox:
    """The store as a resident run sees it: a clock and an inbox."""

    def __init__(self, loop: VirtualLoop, start_us: int) -> None:
        self._loop = loop
        self._start_us = start_us
        self.messages: list[Message] = []

    def now(self) -> int:
        return self._start_us + round(self._loop.time() * 1_000_000)

    def inbox(self, run_id: str) -> list[Message]:
        return list(self.messages)


class Reader:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def call(self, loop: asyncio.AbstractEventLoop, function: Any, *args: Any) -> asyncio.Future[Any]:
        future = loop.create_future()
        self._loop.call_later(0.01, lambda: future.set_result(function(*args)))
        return future


class World:
    """One worker and one run in it, from a log until the run leaves."""

    def __init__(
        self, workflow: perdure.Workflow[..., Any], args: Sequence[Any] = (), *, run_id: str = "run", seed: int = 0,
        outside: Outside | None = None, python: str | None = None, steps: Sequence[Any] = (), **settings: Any,
    ) -> None:  # fmt: skip
        self.workflow = workflow
        self.args = tuple(args)
        self.run_id = run_id
        self.outside = outside or Outside(seed)
        self.python = python or f"{sys.version_info.major}.{sys.version_info.minor}"
        self.settings = Settings(**settings)
        self.log: list[Event] = []
        self.snapshots: dict[int, Any] = {}
        self.begun = 0
        """How much of the log there was before this world began."""
        self.evict_when_idle = False
        self.inbox_before = 0
        """Requests to cancel that were sent before the run was claimed."""
        self.on_event: Callable[[Event], None] = lambda _event: None
        self._steps = steps
        self.run: ResidentRun | None = None

    # -- the log -------------------------------------------------------------------------------------------------

    def first_events(self) -> tuple[Event, ...]:
        definition = self.workflow.definition
        given = encode_call(definition.signature, self.args, {}, CODEC)
        return seal(self.run_id, EMPTY_TAIL, (Draft(EventType.RUN_STARTED, EPOCH_US, input=given),), 0, 1)

    def claim(self, log: list[Event], at: int) -> None:
        epoch = 1 + sum(event.type == EventType.RUN_CLAIMED for event in log)
        detail = msgspec.json.encode({"worker": f"w{epoch}", "version": "0.0.0", "python": self.python})
        draft = Draft(EventType.RUN_CLAIMED, at, state="pending>running", detail=detail)
        log.extend(seal(self.run_id, tail_of(log[-1]), (draft,), epoch, len(log)))

    # -- execution -----------------------------------------------------------------------------------------------

    def execute(self, prefix: Sequence[Event] = (), *, during: Callable[[World], None] | None = None) -> Event:
        """Take the run up where ``prefix`` ends, and return the event with which it left."""
        with self._loop() as loop:
            self._reside(loop, list(prefix) or list(self.first_events()))
            if during is not None:
                loop.call_soon(during, self)
            while self.run_id in self.host.runs:
                loop._run_once()
                if self.evict_when_idle:
                    self._evict()
        return self.log[-1]

    def _evict(self) -> None:
        run = self.run
        if run is not None and self.run_id in self.host.idle and (run.next_wake or 0) > self.store.now():
            run.evict()

    @contextmanager
    def _loop(self) -> Any:
        loop = VirtualLoop()
        enter(self.outside)
        asyncio._set_running_loop(loop)
        try:
            yield loop
            self._settle_down(loop)
        finally:
            asyncio._set_running_loop(None)
            self.host.threads.close(2)
            loop.close()

    def _settle_down(self, loop: VirtualLoop) -> None:
        """Let cancelled steps end."""
        while tasks := [task for task in asyncio.all_tasks(loop) if not task.done()]:
            loop._run_once()  # type: ignore[attr-defined]
        del tasks

    def _reside(self, loop: VirtualLoop, log: list[Event]) -> None:
        self.log = log
        self.begun = len(log)
        start = max(log[-1].at + 1_000, self._due(log[-1]))
        self.claim(log, start)
        self.store = Inbox(loop, start)
        self.store.messages += [
            Message(self.run_id, n + 1, "cancel", start, b'{"actor":"test"}') for n in range(self.inbox_before)
        ]
        workflows, steps = WorkflowRegistry(), StepRegistry()
        workflows.admit(self.workflow.definition)
        self.writer = LogWriter(loop, self.outside, log)
        self.host = Host(
            store=self.store, writer=self.writer, reader=Reader(loop), loop=loop, settings=self.settings,  # type: ignore[arg-type]
            codec=CODEC, workflows=workflows, steps=steps, waiters=Waiters(self.store, Reader(loop)),  # type: ignore[arg-type]
            commit_ids=CommitIds(), definitions=Cache(1),
        )  # fmt: skip
        self.host.python = self.python
        self.host.luck = lambda: 0.5
        run = self.run = ResidentRun(self.host, self.row(), log[-1].epoch, tail_of(log[-1]), log[0])
        self._watch(run)
        loop.selector.busy = lambda: self.host.threads.busy > 0 or self._body_has_its_turn(run)
        self.host.runs[self.run_id] = run
        run.begin(list(log))
        self.host.turns.join_soon(run)

    @staticmethod
    def _due(last: Event) -> int:
        """Return when a run that waits may be claimed."""
        if last.type != EventType.RUN_WAITING:
            return 0
        return int(msgspec.json.decode(last.detail or b"{}")["wake_at"])

    def row(self) -> RunRow:
        name = self.workflow.name
        return RunRow(
            self.run_id,
            name,
            "0.0.0",
            "running",
            "default",
            0,
            None,
            "w",
            0,
            self.inbox_before,
            None,
            0,
            None,
            None,
            EPOCH_US,
            EPOCH_US,
        )

    @staticmethod
    def _body_has_its_turn(run: ResidentRun) -> bool:
        bridge = run.execution.bridge
        return bridge is not None and bridge.has_turn and not run.gone

    def _watch(self, run: ResidentRun) -> None:
        execution = run.execution
        deliver = execution.deliver
        strict = 0
        """Place of the last result that nothing may begin before, of those that the body knows."""

        def watched(event: Event) -> None:
            nonlocal strict
            operation = execution.pending.get(event.op or "")
            if isinstance(operation, StepOperation) and operation.definition.policy.durability == "strict":
                strict = event.seq
            deliver(event)
            if event.seq not in self.snapshots:
                pending = [(op.id, op.kind, op.name) for op in execution.pending.values()]
                self.snapshots[event.seq] = (list(self.outside.trace), pending, execution.logical_time)
            self.on_event(event)

        def called(info: perdure.StepInfo) -> None:
            if info.attempt == 1:
                assert self.log[-1].seq >= strict, f"{info.name} began before event {strict} was on record"

        execution.deliver = watched  # type: ignore[method-assign]
        self.outside.on_call = called

    def cancel(self) -> None:
        """Send the run a request to cancel."""
        messages = self.store.messages
        messages.append(Message(self.run_id, len(messages) + 1, "cancel", self.store.now(), b'{"actor":"test"}'))
        self.run.look_at_inbox()  # type: ignore[union-attr]


def result(event: Event) -> Any:
    """Give what a run ended with, in a form that can be compared."""
    if event.type == EventType.RUN_COMPLETED:
        return ("completed", CODEC.decode(event.payload or b"null", Any))
    if event.type == EventType.RUN_FAILED:
        failure = read_failure(event.payload or b"", CODEC)
        return ("failed", failure.type_name, failure.message)
    return (str(event.type), (event.detail or b"").decode())


def tail(log: Sequence[Event]) -> Tail:
    return tail_of(log[-1])
