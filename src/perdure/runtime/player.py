"""Plays the log of one run to its body, and starts what the body asks for.

Recorded events are delivered strictly in the order of the log (the `Tape`), on replay and live alike. What the body
asks for is started by the `Launcher`. Whatever must not be overtaken (a body on a thread, a step that is not recorded)
*holds* the deliveries.

A run goes on in stages, alone (`Player.pump`) or together with others (`perdure.runtime.turns`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from perdure.model.status import EventType
from perdure.runtime import history

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution
    from perdure.kernel.kinds.step import StepOperation
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.runtime.attempt import Attempts
    from perdure.runtime.host import Host
    from perdure.runtime.launcher import Launcher
    from perdure.runtime.recorder import Recorder
    from perdure.runtime.tape import Tape

CHUNK = range(500)
"""Events delivered in one turn of the engine's loop, so that a long replay does not block it."""
_STARTS_ATTEMPT = frozenset(
    {EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT, EventType.STEP_SENT, EventType.STEP_RETURNED}
)
"""Events after whose delivery a step goes on: here, or elsewhere."""


class Player(ABC):
    """The side of a resident run that its log and its body see."""

    id: str
    host: Host
    row: RunRow
    execution: Execution
    recorder: Recorder
    tape: Tape
    attempts: Attempts
    launcher: Launcher
    gone: bool
    leaving: bool
    inbox_seen: int
    _replayed: history.Summary
    _holds: int
    # What begins the same for every run stands here: runs are made by the thousand.
    _live: bool = False
    _pumping: bool = False

    @abstractmethod
    def rest(self) -> None:
        """Last stage of a turn: end, or wait."""

    @abstractmethod
    def look_at_inbox(self) -> None:
        """Fetch the messages that wait; meanwhile nothing starts."""

    @abstractmethod
    def _caught(self, error: BaseException) -> None:
        """Take an exception out of body code or its log: the run cannot go on here, and has had no effect yet."""

    # -- deliveries ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver what can be delivered, then start what the body asked for: a turn alone."""
        if self.think():
            self.act()
            self.rest()

    def _deliver(self) -> bool:
        """Return whether the log is exhausted, as far as it is known."""
        for _ in CHUNK:
            if not self.hear():
                return True
            self._run_body()
        self.pump_soon()
        return False

    def hear(self) -> bool:
        """First stage of a turn: settle the next event, if one may be delivered now. Whether there was one."""
        tape, execution, replayed = self.tape, self.execution, self._replayed
        if execution.fresh and not self._live:
            self.launcher.start_fresh()  # steps that are never recorded run on replay too
        undelivered = tape.undelivered
        if not undelivered or self._holds or (execution.unrecorded and execution.holding):
            return False
        event = undelivered[0]
        seq = event.seq
        if (seq > tape.durable and seq not in tape.early) or self.leaving or self.gone:
            return False
        undelivered.popleft()
        try:
            if seq in replayed.voided:
                self._void(event)
            elif seq not in replayed.doubtful or execution.asks_for(event):
                execution.settle(event)
        except BaseException as error:  # noqa: BLE001 - sorted out there
            self._caught(error)
        if event.type in _STARTS_ATTEMPT and self._live:
            self.launcher.start_attempt(event)
        return True

    def think(self) -> bool:
        """Second stage of a turn: let the body run, and deliver what else there is. Whether the next stage may come."""
        if self._pumping or self.gone:
            return False
        self._pumping = True
        exhausted = True
        try:
            self._run_body()
            if self.tape.undelivered or not self._live:
                exhausted = self._deliver()
        finally:
            self._pumping = False
        return exhausted and not self.gone

    def _run_body(self) -> None:
        try:
            self.execution.turn()
        except BaseException as error:  # noqa: BLE001 - sorted out there
            self._caught(error)

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

    def _turn(self) -> None:
        """Let the body run after something other than an event was answered."""
        if not self.gone:
            self._run_body()
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

    def act(self) -> None:
        """Third stage of a turn: start what was asked for and what has waited, stop what was given up."""
        execution = self.execution
        if self.leaving or self.recorder.closed or not (self._live or self._go_live()):
            return
        if execution.fresh:
            self.launcher.start_fresh()
        if execution.given_up:
            for operation in execution.take_given_up():
                self.attempts.give_up(operation)
        if self.launcher.gated:
            self.launcher.open_gate()

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
