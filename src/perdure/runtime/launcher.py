"""Starts what a body asks for, in the order it was asked for, when its turn has come.

Three things make an operation wait: results that are not recorded yet (for a strict step), too many of them (for a
step that may run ahead), and messages from outside that are being taken in: a cancel that was acknowledged comes before
anything new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perdure.kernel.kinds.step import StepOperation
from perdure.model.status import EventType
from perdure.runtime.alarm import Alarm
from perdure.runtime.closing import Deadline

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution
    from perdure.kernel.operation import Operation
    from perdure.model.event import Draft, Event
    from perdure.runtime.attempt import Attempts
    from perdure.runtime.host import Host
    from perdure.runtime.tape import Tape


class Owner(Protocol):
    """The run whose operations these are."""

    host: Host
    execution: Execution
    tape: Tape
    attempts: Attempts
    gone: bool
    leaving: bool
    stopping: bool

    def pump(self) -> None:
        """Deliver what can be delivered and go on."""
        ...


class Launcher:
    """The port of one run's operations (`perdure.kernel.operation.Port`).

    Attributes:
        gated: operations that wait for their turn, oldest first.
        fetching: whether messages are being fetched.
        holding_all: whether even what was asked for before waits for the messages: the run has just come here, and a
            cancel that was acknowledged before is to come first.
        gate_seq: place of the last message taken in; until it is delivered nothing starts.
    """

    __slots__ = ("_alarm", "_run", "fetching", "gate_seq", "gated", "holding_all")

    def __init__(self, run: Owner) -> None:
        self._run = run
        self._alarm: Alarm | None = None
        """None before a time was waited for: most runs never do."""
        self.gated: list[Operation] = []
        self.fetching: bool = False
        self.holding_all: bool = False
        self.gate_seq: int = 0

    # -- the port ------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the database's clock."""
        return self._run.host.now()

    def attempt(self, operation: StepOperation) -> None:
        """Begin an attempt of a step, or wait for its time."""
        run = self._run
        if operation.next_at and operation.next_at > run.host.now():
            self.wake(operation, operation.next_at)
        else:
            run.attempts.start(operation)

    def wake(self, operation: Operation, due: int) -> None:
        """Remember when an operation is due."""
        if self._alarm is None:
            host = self._run.host
            self._alarm = Alarm(host.loop, host.now, self._is_wanted, self.wake_due)
        self._alarm.push(due, operation)

    def record(self, draft: Draft) -> None:
        """Append an event and deliver it once it is durable."""
        self._run.tape.record(draft)

    # -- starting ------------------------------------------------------------------------------------------------

    def start_fresh(self) -> None:
        """Start what was just asked for, or let it wait for its turn."""
        run = self._run
        execution = run.execution
        fresh = execution.take_fresh()
        if run.leaving or not fresh:
            return
        if execution.unrecorded and execution.holding:
            # What is not recorded starts at once, live and on replay: its place is not in the log.
            for operation in fresh:
                if operation.unrecorded:
                    operation.start(self)
            fresh = [operation for operation in fresh if not operation.unrecorded]
        if self.gated or run.stopping or self.fetching or (self.gate_seq and self._is_shut()):
            self.gated.extend(fresh)
            return
        early = run.tape.early
        for operation in fresh:
            if self.gated or (early and self._must_wait(operation)):  # what is asked for later starts later
                self.gated.append(operation)
            else:
                operation.start(self)

    def open_gate(self) -> None:
        """Start what has waited and need wait no longer."""
        run, gated = self._run, self.gated
        opened = 0
        for operation in gated:
            if run.leaving or run.stopping or self._is_shut() or self._must_wait(operation):
                break
            opened += 1
            if run.execution.pending.get(operation.id) is operation:
                operation.start(self)
        del gated[:opened]

    def start_attempt(self, event: Event) -> None:
        """Go on with a step whose failed attempt, intent or way elsewhere is on record now."""
        if event.type == EventType.STEP_RETURNED:
            self._run.attempts.errands.returned(event)
            return
        operation = self._run.execution.pending.get(event.op or "")
        if not isinstance(operation, StepOperation):
            return
        if event.type == EventType.STEP_INTENT:
            self._run.attempts.intended(operation, event.attempt)
        else:
            self.attempt(operation)

    def _is_shut(self) -> bool:
        undelivered = self._run.tape.undelivered
        return self.fetching or bool(undelivered and undelivered[0].seq <= self.gate_seq)

    def _must_wait(self, operation: Operation) -> bool:
        """A strict step waits for all unrecorded results; an ahead step while there are too many of them."""
        early = self._run.tape.early
        if not early:
            return False
        if isinstance(operation, StepOperation) and operation.definition.policy.durability == "ahead":
            settings = self._run.host.settings
            oldest = next(iter(early.values()))
            return len(early) >= settings.ahead_results or self.now() - oldest > settings.ahead_us
        return True

    # -- times ---------------------------------------------------------------------------------------------------

    def set_deadline(self, due: int) -> None:
        """End the run as timed out at ``due``."""
        self.wake(Deadline(self._run.execution), due)

    @property
    def next_due(self) -> int | None:
        """When there is something to do next; None when no time is waited for."""
        return None if self._alarm is None else self._alarm.next_due

    def wake_due(self) -> None:
        """Start or record what is due by now. A run that was idle is so no longer."""
        run = self._run
        if run.gone or run.leaving or run.tape.recorder.closed or self._alarm is None:
            return
        now = self.now()
        for operation in self._alarm.take_due(now):
            if isinstance(operation, StepOperation):
                run.attempts.start(operation)
            else:
                run.tape.record(operation.fired(now))
        run.pump()

    def cancel(self) -> None:
        """Start nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        self.gated.clear()

    def release(self) -> None:
        """Let go of the run: without this circle its memory is free at once."""
        del self._run

    def _is_wanted(self, operation: Operation) -> bool:
        return self._run.execution.pending.get(operation.id) is operation or isinstance(operation, Deadline)
