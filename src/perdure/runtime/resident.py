"""One run in this process: feeds its body from the log, starts what the body asks for, records how it ends.

Recorded events are delivered strictly in the order of the log, on replay and live alike. Live events wait in
``_undelivered`` until they are durable; results of ``durability="ahead"`` steps may be delivered before that, but never
out of order. Whatever must not be overtaken (a body on a thread, a step that is not recorded) *holds* the deliveries.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.signature import decode_call
from perdure.kernel.kinds.step import StepOperation
from perdure.model.event import Draft, Event
from perdure.model.status import EventType
from perdure.runtime import closing, history
from perdure.runtime.alarm import Alarm
from perdure.runtime.attempt import Attempts
from perdure.runtime.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.kernel.execution import Execution
    from perdure.kernel.operation import Operation
    from perdure.model.event import Tail
    from perdure.model.run import Message, RunRow
    from perdure.model.write import Append, Change
    from perdure.runtime.host import Host

logger = logging.getLogger("perdure.run")
CHUNK = 500
"""Events delivered in one turn of the engine's loop, so that a long replay does not block it."""
_STARTS_ATTEMPT = frozenset({EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT})
"""Events after whose delivery an attempt is to begin."""


class ResidentRun:
    """A run this worker owns. Lives from its claim until it ends, waits, moves or is lost."""

    definition: WorkflowDefinition
    arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init__(self, host: Host, row: RunRow, epoch: int, tail: Tail, given: bytes) -> None:
        self.host = host
        self.row = row
        self.id = row.id
        self.input = given
        self.execution: Execution = host.build(self)
        self.recorder = Recorder(row.id, epoch, tail, host.writer, host.commit_ids, self)
        self.attempts = Attempts(self)
        self.inbox_seen = 0
        self.settled_in = False
        """Whether the database must already show this worker as the owner."""
        self.idle = False
        self.gone = False
        self.leaving = False
        self.stopping = False
        self.replaced_at = 0
        """Place of the last event that could not be stored and was replaced."""
        self._undelivered: deque[Event] = deque()
        self._durable = 0
        self._early: dict[int, int] = {}
        """Events delivered before they are durable: seq to when they were added."""
        self._holds = 0
        self._gated: deque[Operation] = deque()
        self._fetching = 0
        self._gate_seq = 0
        self._alarm = Alarm(host.loop, host.now, self._is_wanted, self.wake_due)
        self._live = False
        self._pumping = False
        self._replayed = history.FRESH

    # -- coming and going ----------------------------------------------------------------------------------------

    def begin(self, events: Sequence[Event]) -> None:
        """Start the body and feed it the log so far; ``events`` are durable."""
        self._undelivered.extend(events)
        self._durable = events[-1].seq
        if len(events) > 2:  # more than started and claimed
            self._replayed = history.summarise(events)
            self.inbox_seen = self._replayed.consumed
        try:
            self.arguments = decode_call(self.definition.signature, self.input, self.execution.codec)
        except Exception as error:  # noqa: BLE001 - sorted out there
            self._caught(error)
        self.pump()

    def drop(self, reason: str) -> None:
        """Lose the run: stop everything for it, record nothing."""
        if not self.gone:
            logger.warning("run %s: lease lost, %s; another worker has it or will take it", self.id, reason)
            self._leave()

    def _leave(self) -> None:
        self.gone = True
        self._alarm.cancel()
        self.attempts.abandon()
        self.execution.kill()
        self.host.left(self)
        self.recorder.release()
        self.execution.release()

    # -- deliveries ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver what can be delivered, then start what the body asked for."""
        if self._pumping or self.gone:
            return
        self._pumping = True
        try:
            if not self._deliver():
                return
        finally:
            self._pumping = False
        if not self.gone:
            self._advance()

    def _deliver(self) -> bool:
        """Return whether the log is exhausted, as far as it is known."""
        undelivered, execution = self._undelivered, self.execution
        voided, doubtful = self._replayed.voided, self._replayed.doubtful
        for _ in range(CHUNK):
            if execution.fresh and not self._live:
                self._start_fresh()  # steps that are never recorded run on replay too
            if not undelivered or self._holds or (execution.unrecorded and execution.holding):
                return True
            event = undelivered[0]
            seq = event.seq
            if (seq > self._durable and seq not in self._early) or self.leaving or self.gone:
                return True
            undelivered.popleft()
            try:
                if seq in voided:
                    self._void(event)
                elif seq not in doubtful or execution.asks_for(event):
                    execution.deliver(event)
            except BaseException as error:  # noqa: BLE001 - sorted out there
                self._caught(error)
            if event.type in _STARTS_ATTEMPT and self._live:
                self._start_attempt(event)
        self.pump_soon()
        return False

    def pump_soon(self) -> None:
        """Pump from a plain callback: a body is never run from inside a task of the engine's loop."""
        self.host.loop.call_soon(self.pump)

    @property
    def _held(self) -> bool:
        """Whether deliveries have to wait: for a body on a thread, or for a step that is not recorded."""
        return self._holds > 0 or self.execution.holding

    def _void(self, event: Event) -> None:
        if event.type == EventType.STEP_FAILED and event.seq in self._replayed.void_failures:
            self.execution.void(event)

    def _caught(self, error: BaseException) -> None:
        """Take an exception out of body code or its log: the run cannot go on here, and has had no effect yet."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._leave()
            raise error
        closing.park_for(self, error, self._replayed)

    def turn(self) -> None:
        """Let the body run after something other than an event was answered."""
        if self.gone:
            return
        try:
            self.execution.turn()
        except BaseException as error:  # noqa: BLE001 - sorted out there
            self._caught(error)
        self.pump()

    def hold(self, change: int) -> None:
        """Hold deliveries (+1), or let go of one hold (-1) and let the body run."""
        self._holds += change
        if change < 0:
            self.turn()

    # -- starting operations -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start what was asked for; end the run, once the body has ended and nothing is under way."""
        recorder, execution = self.recorder, self.execution
        if self.leaving or recorder.closed or not (self._live or self._go_live()):
            return
        if execution.fresh:
            self._start_fresh()
        if execution.given_up:
            for operation in execution.take_given_up():
                self.attempts.give_up(operation)
        if self._gated:
            self._open_gate()
        if self._undelivered or self._holds or (execution.unrecorded and execution.holding):
            return
        if execution.outcome is not None:
            if not self.attempts.running and not recorder.busy:
                closing.finish(self)
        elif self.idle or not self.attempts.running:
            self._note_idle()

    def _go_live(self) -> bool:
        """Once the log is exhausted: take in messages, then start what has no answer."""
        if self._undelivered or self._held:
            return False
        self._live = True
        self.execution.take_fresh()
        self._gated.extend(self.execution.go_live())
        if self.row.deadline_at is not None and not self._replayed.deadline_passed:
            self._alarm.push(self.row.deadline_at, closing.Deadline(self.execution))
        if self.row.inbox_n > self.inbox_seen:
            self.look_at_inbox()
        return True

    def look_at_inbox(self) -> None:
        """Fetch the messages that wait; until they are in the log nothing starts."""
        if self._live and not self._fetching:
            self._fetching += 1
            self.host.fetch_inbox(self)

    def take_messages(self, messages: list[Message]) -> None:
        """Record messages from outside as events of the log."""
        self._fetching = 0
        if self.gone or self.leaving or self.recorder.closed:
            return
        for message in messages:
            if message.n > self.inbox_seen:
                self.inbox_seen = message.n
                draft = Draft(EventType.CANCEL_REQUESTED, self.now(), detail=_numbered(message))
                event = self.recorder.add(draft, consumed=message.n)
                if self._replayed is history.FRESH:  # shared by all runs that are new
                    self._replayed = history.Summary()
                history.note_message(self._replayed, event)
                self._undelivered.append(event)
                self._gate_seq = event.seq
        self.pump()

    def _start_fresh(self) -> None:
        fresh = self.execution.take_fresh()
        if self.leaving or not fresh:
            return
        if self.execution.unrecorded and self.execution.holding:
            # What is not recorded starts at once, live and on replay: its place is not in the log.
            for operation in fresh:
                if operation.unrecorded:
                    operation.start(self)
            fresh = [operation for operation in fresh if not operation.unrecorded]
        if self._gated or self.stopping or self._fetching or (self._gate_seq and self._gate_is_shut()):
            self._gated.extend(fresh)
            return
        for operation in fresh:
            if self._must_wait(operation):
                self._gated.append(operation)
            else:
                operation.start(self)

    def _open_gate(self) -> None:
        gated = self._gated
        while gated and not (self.leaving or self.stopping or self._gate_is_shut()):
            if self._must_wait(gated[0]):
                return
            operation = gated.popleft()
            if self.execution.pending.get(operation.id) is operation:
                operation.start(self)

    def _gate_is_shut(self) -> bool:
        """While messages are being taken in nothing starts: a cancel that was acknowledged comes first."""
        return bool(self._fetching) or bool(self._undelivered and self._undelivered[0].seq <= self._gate_seq)

    def _must_wait(self, operation: Operation) -> bool:
        """A strict step waits for all unrecorded results; an ahead step while there are too many of them."""
        if not self._early:
            return False
        if isinstance(operation, StepOperation) and operation.definition.policy.durability == "ahead":
            settings = self.host.settings
            oldest = next(iter(self._early.values()))
            return len(self._early) >= settings.ahead_results or self.now() - oldest > settings.ahead_us
        return True

    # -- what operations ask for (the Port) ----------------------------------------------------------------------

    def now(self) -> int:
        """Return the database's clock."""
        return self.host.now()

    def attempt(self, operation: StepOperation) -> None:
        """Begin an attempt of a step, or wait for its time."""
        if operation.next_at and operation.next_at > self.host.now():
            self._alarm.push(operation.next_at, operation)
        else:
            self.attempts.start(operation)

    def wake(self, operation: Operation, due: int) -> None:
        """Remember when an operation is due."""
        self._alarm.push(due, operation)

    def record(self, draft: Draft) -> None:
        """Append an event and deliver it once it is durable."""
        if not self.recorder.closed:
            self._undelivered.append(self.recorder.add(draft))

    def record_early(self, draft: Draft) -> None:
        """Append an event and deliver it in its turn, without waiting for it to be durable."""
        if self.recorder.closed:
            return
        event = self.recorder.add(draft)
        self._early[event.seq] = event.at
        self._undelivered.append(event)
        self.pump_soon()

    def _start_attempt(self, event: Event) -> None:
        """Go on with a step whose failed attempt, or whose intent, is on record now."""
        operation = self.execution.pending.get(event.op or "")
        if not isinstance(operation, StepOperation):
            return
        if event.type == EventType.STEP_INTENT:
            self.attempts.intended(operation, event.attempt)
        else:
            self.attempt(operation)

    def _is_wanted(self, operation: Operation) -> bool:
        return self.execution.pending.get(operation.id) is operation or isinstance(operation, closing.Deadline)

    def wake_due(self) -> None:
        """Record what is due by now."""
        if self.gone or self.leaving or self.recorder.closed:
            return
        now = self.now()
        for operation in self._alarm.take_due(now):
            if isinstance(operation, StepOperation):
                self.attempts.start(operation)
            else:
                self._undelivered.append(self.recorder.add(operation.fired(now)))

    # -- what the recorder tells (the Listener) ------------------------------------------------------------------

    def recorded(self, last: Event, change: Change | None) -> None:
        """Take the confirmation of everything up to ``last``."""
        seq = self._durable = last.seq
        if self._early:
            self._early = {early: at for early, at in self._early.items() if early > seq}
        if change is not None:
            self.host.changed(self, change, last)
            self._leave()
            return
        self.pump()

    def refused(self, reason: str) -> None:
        """The run is somebody else's now."""
        self.drop(reason)

    def unstorable(self, append: Append, error: Exception) -> None:
        """An append was refused for its own contents."""
        closing.replace_unstorable(self, append, error)

    # -- idleness ------------------------------------------------------------------------------------------------

    def _note_idle(self) -> None:
        idle = not (self.attempts.under_way or self.recorder.busy or self._gated or self._early or self._fetching)
        if idle and self._alarm.next_due is None:
            text = "the body waits for something that can never happen: no step, timer or message is outstanding"
            closing.park(self, text, "fix the code, then perdure retry")
            return
        if idle != self.idle:
            self.idle = idle
            self.host.idleness(self)

    @property
    def next_wake(self) -> int | None:
        """When the run has something to do next, while it is idle."""
        return self._alarm.next_due

    def evict(self) -> None:
        """Leave memory: the run waits in the database for its next wake-up."""
        under_way = self._undelivered or self._held or self._fetching or self.recorder.busy
        if self.idle and not (self.leaving or self.recorder.closed or under_way):
            closing.release(self, EventType.RUN_WAITING, self.next_wake)

    def hand_back(self, reason: str) -> None:
        """Give the run to whoever claims it next, now."""
        if not (self.gone or self.leaving or self.recorder.closed):
            self.attempts.abandon()
            closing.release(self, EventType.RUN_RELEASED, self.now(), reason)

    def stop_starting(self) -> None:
        """Hand the run back as soon as no step of it is under way; start nothing more."""
        self.stopping = True
        self.evict()  # an idle run has nothing to do before its time, wherever it is
        if not self.attempts.running and not self._undelivered and not self._held:
            self.hand_back("the worker stops")

    # -- for closing and attempts --------------------------------------------------------------------------------

    def append_last(self, draft: Draft, change: Change) -> None:
        """Append the event that ends this worker's ownership."""
        self.leaving = True
        self.recorder.add(draft, change)

    def answer(self, operation: StepOperation, payload: bytes | None, error: bytes | None) -> None:
        """Answer a step that is not recorded."""
        if self.gone:
            return
        try:
            self.execution.answer(operation, payload, error)
        except BaseException as raised:  # noqa: BLE001 - sorted out there
            self._caught(raised)
        self.pump()

    def rewind(self, event: Event) -> None:
        """Go back to before ``event``, which could not be stored."""
        last = self._undelivered
        while last and last[-1].seq >= event.seq:
            last.pop()
        self.recorder.rewind(event)

    def record_again(self, draft: Draft, change: Change | None) -> None:
        """Append what replaces an event that could not be stored."""
        event = self.recorder.add(draft, change)
        if change is None:
            self._undelivered.append(event)


def _numbered(message: Message) -> bytes:
    """Return the message's detail with its number, by which a later owner knows what was taken in."""
    detail = msgspec.json.decode(message.detail) if message.detail else {}
    return msgspec.json.encode({"n": message.n, **detail})
