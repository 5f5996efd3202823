"""The check of one recorded run: feeds its log to a workflow function as a worker's replay does, and starts nothing.

The body runs in a real `Execution`, so ids, matching, cancellation and retries are those of a worker. What is recorded
is delivered until something does not fit, or until the body asks for an operation without a record: there the check
ends. A step is never called; effects of the body itself are refused (`perdure.replay.watch`).
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.codec.signature import decode_call
from perdure.codec.tagged.annotation import fits
from perdure.codec.tagged.classes import type_name
from perdure.errors import CodecError, Diverged
from perdure.kernel.frozen import NOTHING, Frozen
from perdure.kernel.kinds.step import StepOperation
from perdure.kernel.loop import Spinning
from perdure.kernel.operation import NOTES
from perdure.kernel.step_run import StepRun, executed_by
from perdure.model.run import RunRow
from perdure.model.status import EventType
from perdure.replay import ending
from perdure.replay.ending import told
from perdure.replay.rehearsal import Rehearsal
from perdure.replay.verdict import Finding, Verdict, VerdictKind
from perdure.replay.watch import SideEffect, Watch
from perdure.runtime.bridge import Bridge
from perdure.runtime.history import effective, summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.codec.base import Codec
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.event import Event
    from perdure.replay.history import History
    from perdure.runtime.registry import StepRegistry

PATIENCE_S = 10.0
"""How long a body may take between two waits."""
_ENDS = frozenset(
    {EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED, EventType.RUN_TERMINATED,
     EventType.RUN_CONTINUED}
)  # fmt: skip
_UNWIND_S = 1.0
_K = VerdictKind


class Code(NamedTuple):
    """What a history is checked against."""

    workflow: WorkflowDefinition
    steps: StepRegistry
    codec: Codec
    frozen: Frozen = NOTHING


class Found(Exception):
    """Ends a check."""

    def __init__(self, kind: VerdictKind, at: str | None = None, **facts: Any) -> None:
        super().__init__(kind)
        self.kind = kind
        self.at = at
        self.facts = facts


def check(history: History, code: Code, patience_s: float = PATIENCE_S) -> Finding:
    """Check one history on this thread, which must not be inside a task of an event loop.

    Args:
        history: the recorded run.
        code: what it is checked against.
        patience_s: how long a sync body may take between two operations.
    """
    if history.events:
        code = code._replace(workflow=executed_by(code.workflow, history.events[0]))
    collects = gc.isenabled()
    gc.disable()  # what the collector finalizes is not the body's doing
    replay = _Replay(history, code, patience_s)
    try:
        replay.run()
        kind, at, facts = _K.SAFE, None, {}
    except Found as found:
        kind, at, facts = found.kind, found.at, found.facts
    finally:
        replay.close()
        if collects:
            gc.enable()
    verdict = Verdict(run_id=history.run_id, workflow=history.workflow, kind=kind, at=at, **facts)
    return Finding(verdict, replay.rehearsal.trace)


class _Replay:
    def __init__(self, history: History, code: Code, patience_s: float) -> None:
        self.history = history
        self.code = code
        self.watch = Watch()
        self.last: Event | None = None
        """The last record that answered the body."""
        self._patience_s = patience_s
        self._mail: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = queue.SimpleQueue()
        self._holds = 0
        self._unwound: threading.Event | None = None
        self._call: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.rehearsal = self._build()

    # -- the body ------------------------------------------------------------------------------------------------

    def _build(self) -> Rehearsal:
        history, definition = self.history, self.code.workflow
        row = RunRow(
            history.run_id, history.workflow, history.version, "running", "default", 0, None, "check", 0, 0, None, 0,
            history.tags, None, 0, 0,
        )  # fmt: skip
        if definition.is_async:
            rehearsal = Rehearsal(history.run_id, self._body, self.code.codec, self.code.steps, row)
            rehearsal.frozen = self.code.frozen
            if isinstance(definition, StepRun):
                rehearsal.caller = definition.caller
            return rehearsal
        loop: Any = self  # all that a bridge asks of a loop is `call_soon_threadsafe`
        bridge = Bridge(self._body_on_its_thread, loop, self._hold)
        rehearsal = Rehearsal(history.run_id, bridge.drive, self.code.codec, self.code.steps, row)
        rehearsal.frozen = self.code.frozen
        bridge.attach(rehearsal)
        return rehearsal

    def _body(self) -> Any:
        args, kwargs = self._call
        return self.code.workflow.function(*args, **kwargs)

    def _body_on_its_thread(self) -> Any:
        self._unwound = threading.Event()
        try:
            with self.watch.armed():
                return self._body()
        finally:
            self._unwound.set()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self._mail.put((callback, args))

    def _hold(self, change: int) -> None:
        self._holds += change

    def _rest(self) -> None:
        """Wait until a body on a thread has come to its next operation, or to its end."""
        while self._holds:
            try:
                callback, args = self._mail.get(timeout=self._patience_s)
            except queue.Empty:
                raise Found(_K.RAISES, self._place, found=f"the code {ending.restless(self._patience_s)}") from None
            callback(*args)
            self.rehearsal.turn()

    def close(self) -> None:
        """Unwind the body. What its clean-up does outside a step is refused, and no longer told."""
        self.watch.is_muted = True
        with self._armed():
            self.rehearsal.kill()
        if self._unwound is not None:
            self._unwound.wait(_UNWIND_S)
        self.rehearsal.release()

    # -- the log -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Check the whole log.

        Raises:
            Found: always, except where nothing is to be said.
        """
        events = list(effective(self.history.events))
        end = events.pop() if events and events[-1].type in _ENDS else None
        self._read_arguments(events)
        summary = summarise(events)
        ahead = self.rehearsal.look_ahead(events)
        while ahead:
            if self.rehearsal.unrecorded and self.rehearsal.holding:
                self._stop_at_unrecorded(self.rehearsal.unrecorded[0])
            event = ahead.popleft()
            if event.seq in summary.voided:
                if event.type == EventType.STEP_FAILED and event.seq in summary.void_failures:
                    self._feed(event, self.rehearsal.void)
            elif event.seq not in summary.doubtful or self.rehearsal.asks_for(event):
                self._feed(event, self.rehearsal.deliver)
        if self.rehearsal.unrecorded and self.rehearsal.holding:
            self._stop_at_unrecorded(self.rehearsal.unrecorded[0])
        self._conclude(end)

    def _read_arguments(self, events: list[Event]) -> None:
        try:
            given = events[0].input if events else None
            self._call = decode_call(self.code.workflow.signature, given or b"{}", self.code.codec)
        except Diverged as error:  # there is no such step
            found = f"the code has {error.found}"
            raise Found(_K.DIVERGES, "start", expected=str(error.expected), found=found) from None
        except Exception as error:  # noqa: BLE001 - classes of the code may raise what they like
            text = error.text if isinstance(error, CodecError) else ending.described(error)
            raise Found(_K.STATE_INCOMPATIBLE, "input", found=f"the arguments cannot be read: {text}") from None

    def _feed(self, event: Event, deliver: Callable[[Event], None]) -> None:
        operation = self.rehearsal.pending.get(event.op or "")
        future = None if operation is None else operation.future
        before = self.last
        if event.op is not None and event.type not in NOTES and self.rehearsal.outcome is None:
            self.last = event
        try:
            with self._armed():
                deliver(event)
            self._rest()
        except Found:
            raise
        except Diverged as error:
            self.last = before
            self._diverged(event, error)
        except CodecError as error:
            self._unreadable(event, error)
        except Spinning:
            text = "the code runs without end and never waits for anything"
            raise Found(_K.RAISES, self._place, found=text) from None
        except SystemExit as error:
            raise Found(_K.RAISES, self._place, found=f"the code calls sys.exit({error.code!r})") from None
        except (Exception, SideEffect) as error:  # noqa: BLE001 - classes of the code may raise what they like
            self._effect()
            raise Found(_K.RAISES, self._place, found=f"the code raises {ending.described(error)}") from None
        self._effect()
        if isinstance(operation, StepOperation) and event.type == EventType.STEP_COMPLETED and future is not None:
            self._check_type(event, operation, future)

    def _armed(self) -> AbstractContextManager[None]:
        """Watch this thread, unless the body has one of its own, which it is started on from here."""
        return self.watch.armed() if self.code.workflow.is_async else nullcontext()

    def _effect(self) -> None:
        if self.watch.found:
            raise Found(_K.SIDE_EFFECT, self._place, found=f"the code does this outside a step: {self.watch.found}")

    @property
    def _place(self) -> str:
        """The operation whose record the body saw last."""
        return "start" if self.last is None else str(self.last.op)

    def _diverged(self, event: Event, error: Diverged) -> None:
        outcome = self.rehearsal.outcome
        expected = str(error.expected)
        if outcome is None:
            raise Found(_K.DIVERGES, event.op, expected=expected, found=f"the code asks for {error.found}")
        if outcome.error is not None and not outcome.cancelled:
            raise Found(_K.RAISES, self._place, found=f"the code raises {ending.described(outcome.error)}")
        raise Found(_K.DIVERGES, event.op, expected=expected, found=f"the code ends before: {told(self.rehearsal)}")

    def _unreadable(self, event: Event, error: CodecError) -> None:
        text = f"the result of {event.kind} {event.name!r} cannot be read: {error.text}"
        raise Found(_K.STATE_INCOMPATIBLE, event.op, found=text)

    def _check_type(self, event: Event, operation: StepOperation, future: asyncio.Future[Any]) -> None:
        if not future.done() or future.cancelled() or future.exception() is not None:
            return
        returns, value = operation.definition.signature.returns, future.result()
        if not fits(value, returns):
            wanted = getattr(returns, "__name__", None) or str(returns)
            was = f"a result of type {type_name(type(value))} (event {event.seq})"
            raise Found(
                _K.STATE_INCOMPATIBLE, event.op, expected=was, found=f"step {event.name!r} returns {wanted} now"
            )

    # -- the end of the log --------------------------------------------------------------------------------------

    def _stop_at_unrecorded(self, operation: Any) -> None:
        ahead = sum(event.op is not None for event in self.rehearsal.ahead)
        text = f"{_asked(operation)}, which is not recorded"
        self._differs(next=text, unchecked=ahead)
        raise Found(_K.SAFE, next=text, unchecked=ahead)

    def _conclude(self, end: Event | None) -> None:
        rehearsal = self.rehearsal
        if end is not None and (end.state or "").startswith("running>"):
            finding = ending.compare(end, rehearsal, self.code.workflow, self.code.codec)
            if finding is not None:
                raise Found(finding[0], "end", expected=finding[1], found=finding[2])
            self._differs(next=told(rehearsal))
            raise Found(_K.SAFE, next=told(rehearsal))
        if end is not None:
            self._differs()
            return
        if rehearsal.outcome is not None:
            error = rehearsal.outcome.error
            if error is not None and not rehearsal.outcome.cancelled and rehearsal.failures.cause(error) is None:
                raise Found(_K.RAISES, self._place, found=f"the code raises {ending.described(error)}")
            following = told(rehearsal)
        elif not rehearsal.pending:
            following = "the body begins"
            if rehearsal.claims:
                text = "the code waits for something that can never happen"
                raise Found(_K.RAISES, self._place, found=text)
        else:
            following = ", ".join(map(_asked, rehearsal.pending.values()))
        self._differs(next=following)
        raise Found(_K.SAFE, next=following)

    def _differs(self, **facts: Any) -> None:
        if self.rehearsal.other_data is not None:
            at, expected, found = self.rehearsal.other_data
            raise Found(_K.SAFE_ARGS_DIFFER, at, expected=expected, found=found, **facts)


def _asked(operation: Any) -> str:
    return f"{operation.kind} {operation.name!r} ({operation.id})"
