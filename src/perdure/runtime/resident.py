"""One run in this process: feeds its body from the log, starts what the body asks for, records how it ends.

Recorded events are delivered strictly in the order of the log (the `Tape`), on replay and live alike. What the body
asks for is started by the `Launcher`. Whatever must not be overtaken (a body on a thread, a step that is not recorded)
*holds* the deliveries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.signature import decode_call
from perdure.model.event import Draft
from perdure.model.run import CANCEL, RETURNED, YIELD
from perdure.model.status import EventType
from perdure.runtime import closing, history
from perdure.runtime.attempt import Attempts
from perdure.runtime.launcher import Launcher
from perdure.runtime.recorder import Recorder
from perdure.runtime.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.kernel.execution import Execution
    from perdure.kernel.kinds.step import StepOperation
    from perdure.model.event import Event, Tail
    from perdure.model.run import Message, RunRow
    from perdure.model.write import Change
    from perdure.runtime.host import Host

logger: logging.Logger = logging.getLogger("perdure.run")
CHUNK = range(500)
"""Events delivered in one turn of the engine's loop, so that a long replay does not block it."""
_STARTS_ATTEMPT = frozenset(
    {EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT, EventType.STEP_SENT, EventType.STEP_RETURNED}
)
"""Events after whose delivery a step goes on: here, or elsewhere."""


class ResidentRun:
    """A run this worker owns. Lives from its claim until it ends, waits, moves or is lost."""

    definition: WorkflowDefinition
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    # What begins the same for every run stands here: runs are made by the thousand. What every step asks for does
    # not: to read it from the class takes ten times as long.
    inbox_seen: int = 0
    settled_in: bool = False
    """Whether the database must already show this worker as the owner."""
    idle: bool = False
    yield_until: int = 0
    """Until when somebody who asked for it wants the run to be nobody's; 0 if nobody asks."""
    replaced_at: int = 0
    """Place of the last event that could not be stored and was replaced."""
    sendings: Mapping[str, int] = history.FRESH.sendings
    """By operation: how often it had been sent elsewhere before the run came here."""
    _live: bool = False
    _pumping: bool = False

    def __init__(self, host: Host, row: RunRow, epoch: int, tail: Tail | Event, started: Event) -> None:
        self.gone: bool = False
        self.leaving: bool = False
        self.stopping: bool = False
        self._holds: int = 0
        self._replayed: history.Summary = history.FRESH
        self.host = host
        self.row = row
        self.id: str = row.id
        self.started: Event = started
        self.execution: Execution = host.build(self)
        self.recorder: Recorder = Recorder(row.id, epoch, tail, host.writer, host.commit_ids, self)
        self.tape: Tape = Tape(self.recorder)
        self.execution.ahead = self.tape.undelivered
        self.attempts: Attempts = Attempts(self)
        self.launcher: Launcher = Launcher(self)

    # -- coming and going ----------------------------------------------------------------------------------------

    def begin(self, events: Sequence[Event]) -> None:
        """Start the body and feed it the log so far; ``events`` are durable."""
        self.tape.load(history.effective(events))
        if len(events) > 2:  # more than started and claimed
            self._replayed = history.summarise(events)
            self.inbox_seen = self._replayed.consumed
            self.sendings = self._replayed.sendings
        try:
            self.arguments = decode_call(self.definition.signature, self.started.input or b"{}", self.execution.codec)
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
        self.launcher.cancel()
        self.attempts.abandon()
        self.execution.kill()
        self.host.left(self)
        self.recorder.release()
        self.execution.release()
        self.attempts.release()
        self.launcher.release()

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
        tape, execution = self.tape, self.execution
        undelivered = tape.undelivered
        replayed = self._replayed
        voided, doubtful = replayed.voided, replayed.doubtful
        for _ in CHUNK:
            if execution.fresh and not self._live:
                self.launcher.start_fresh()  # steps that are never recorded run on replay too
            if not undelivered or self._holds or (execution.unrecorded and execution.holding):
                return True
            event = undelivered[0]
            seq = event.seq
            if (seq > tape.durable and seq not in tape.early) or self.leaving or self.gone:
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
                self.launcher.start_attempt(event)
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

    def _turn(self) -> None:
        """Let the body run after something other than an event was answered."""
        if self.gone:
            return
        try:
            self.execution.turn()
        except BaseException as error:  # noqa: BLE001 - sorted out there
            self._caught(error)
        self.pump()

    def answer(self, operation: StepOperation, payload: bytes | None, error: bytes | None) -> None:
        """Answer a step that is not recorded."""
        if self.gone:
            return
        try:
            self.execution.answer(operation, payload, error)
        except BaseException as raised:  # noqa: BLE001 - sorted out there
            self._caught(raised)
        self.pump()

    def hold(self, change: int) -> None:
        """Hold deliveries (+1), or let go of one hold (-1) and let the body run."""
        self._holds += change
        if change < 0:
            self._turn()

    # -- starting operations -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start what was asked for; end the run, once the body has ended and nothing is under way."""
        recorder, execution = self.recorder, self.execution
        if self.leaving or recorder.closed or not (self._live or self._go_live()):
            return
        if execution.fresh:
            self.launcher.start_fresh()
        if execution.given_up:
            for operation in execution.take_given_up():
                self.attempts.give_up(operation)
        if self.launcher.gated:
            self.launcher.open_gate()
        if self.tape.undelivered or self._holds or (execution.unrecorded and execution.holding):
            return
        if execution.outcome is not None:
            if not self.attempts.running and not recorder.busy:
                closing.finish(self)
        elif self.yield_until and not (self.attempts.running or recorder.busy):
            self.attempts.abandon()
            closing.release(self, EventType.RUN_RELEASED, self.yield_until, "somebody asked for it")
        elif self.idle or not self.attempts.running:
            self._note_idle()

    def _go_live(self) -> bool:
        """Once the log is exhausted: take in messages, then start what has no answer."""
        if self.tape.undelivered or self._held:
            return False
        self._live = True
        self.execution.take_fresh()
        self.launcher.gated.extend(self.execution.go_live())
        if self._replayed.sent:
            self._recall()
        if self.row.deadline_at is not None and not self._replayed.deadline_passed:
            self.launcher.set_deadline(self.row.deadline_at)
        if self.row.inbox_n > self.inbox_seen:
            self.look_at_inbox()
            self.launcher.holding_all = True
        return True

    def _recall(self) -> None:
        """Ask for the end of steps elsewhere that were given up, it may be, as the run's last worker ended."""
        for sent in self._replayed.sent.values():
            self.attempts.errands.recall(sent)

    def look_at_inbox(self) -> None:
        """Fetch the messages that wait; meanwhile nothing starts."""
        if self._live and not self.launcher.fetching:
            self.launcher.fetching = True
            self.host.fetch_inbox(self)

    def take_messages(self, messages: list[Message]) -> None:
        """Record messages from outside as events of the log."""
        launcher = self.launcher
        launcher.fetching = False
        if self.gone or self.leaving or self.recorder.closed:
            return
        if not launcher.holding_all and any(message.kind == CANCEL for message in messages):
            # What was asked for before the message came in begins before it is delivered, as it would on any event
            # loop: clean-up whose first await has been reached is not skipped by a cancel.
            # It does not end before it either: a cancel that was acknowledged is not lost to the body's last step.
            self.attempts.eager = False
            launcher.open_gate()
            self.attempts.eager = True
        launcher.holding_all = False
        for message in messages:
            if message.n > self.inbox_seen:
                self.inbox_seen = message.n
                draft = Draft(self._taken_in(message), self.host.now(), detail=_numbered(message))
                event = self.tape.record_message(draft, message.n)
                if self._replayed is history.FRESH:  # shared by all runs that are new
                    self._replayed = history.Summary()
                history.note_message(self._replayed, event)
                launcher.gate_seq = event.seq
        self.pump()

    def _taken_in(self, message: Message) -> EventType:
        """Return the event that takes a message in."""
        if message.kind == RETURNED:
            return EventType.STEP_RETURNED
        if message.kind != YIELD:
            return EventType.CANCEL_REQUESTED
        facts = msgspec.json.decode(message.detail or b"{}")
        until = int(facts.get("until", 0))
        # Else whoever asked has given up, or has done by now what it was for.
        if until > self.host.now() and self.recorder.epoch <= int(facts.get("epoch", 0)) + 1:
            self.yield_until, self.stopping = until, True
        return EventType.YIELD_REQUESTED

    # -- what the recorder tells (the Listener) ------------------------------------------------------------------

    def recorded(self, last: Event, change: Change | None) -> None:
        """Take the confirmation of everything up to ``last``."""
        self.tape.confirm(last.seq)
        if change is not None:
            self.host.changed(self, change, last)
            self._leave()
            return
        self.pump()

    def refused(self, reason: str) -> None:
        """The run is somebody else's now."""
        self.drop(reason)

    def unstorable(self, events: Sequence[Event], change: Change | None, error: Exception) -> None:
        """An event was refused for its own contents; the others wait behind it."""
        closing.replace_unstorable(self, events, change, error)

    # -- idleness ------------------------------------------------------------------------------------------------

    def _note_idle(self) -> None:
        launcher, tape = self.launcher, self.tape
        idle = not (self.attempts.under_way or self.recorder.busy or launcher.gated or tape.early or launcher.fetching)
        if idle and launcher.next_due is None:
            text = "the body waits for something that can never happen: no step, timer or message is outstanding"
            closing.park(self, text, closing.mending(self))
            return
        if idle != self.idle:
            self.idle = idle
            self.host.idleness(self)

    @property
    def next_wake(self) -> int | None:
        """When the run has something to do next, while it is idle."""
        return self.launcher.next_due

    def evict(self) -> None:
        """Leave memory: the run waits in the database for its next wake-up."""
        under_way = self.tape.undelivered or self._held or self.launcher.fetching or self.recorder.busy
        under_way = under_way or self.attempts.under_way
        if self.idle and not (self.leaving or self.recorder.closed or under_way):
            closing.release(self, EventType.RUN_WAITING, self.next_wake)

    def hand_back(self, reason: str, *, fatal: bool = False) -> None:
        """Give the run to whoever claims it next, now. A fatal reason counts like the death of this worker."""
        if not (self.gone or self.leaving or self.recorder.closed):
            self.attempts.abandon()
            closing.release(self, EventType.RUN_RELEASED, self.host.now(), reason, fatal=fatal)

    def stop_starting(self) -> None:
        """Hand the run back as soon as no step of it is under way; start nothing more."""
        self.stopping = True
        self.evict()  # an idle run has nothing to do before its time, wherever it is
        if not self.attempts.running and not self.tape.undelivered and not self._held:
            self.hand_back("the worker stops")


def _numbered(message: Message) -> bytes:
    """Return the message's detail with its number, by which a later owner knows what was taken in."""
    detail = msgspec.json.decode(message.detail) if message.detail else {}
    return msgspec.json.encode({"n": message.n, **detail})
