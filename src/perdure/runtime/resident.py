"""One run in this process: how it comes, is fed by its `Player`, takes in messages, is idle, and goes."""

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
from perdure.runtime.player import Player
from perdure.runtime.recorder import Recorder
from perdure.runtime.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.kernel.execution import Execution
    from perdure.model.event import Event, Tail
    from perdure.model.run import Message, RunRow
    from perdure.model.write import Change
    from perdure.runtime.host import Host

logger: logging.Logger = logging.getLogger("perdure.run")


class ResidentRun(Player):
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
        self.tape: Tape = Tape(self.recorder, host.turns.outbox)
        self.execution.ahead = self.tape.undelivered
        self.attempts: Attempts = Attempts(self)
        self.launcher: Launcher = Launcher(self)

    # -- coming and going ----------------------------------------------------------------------------------------

    def begin(self, events: Sequence[Event]) -> None:
        """Take the log so far, all of it durable. The body starts with the run's first turn."""
        if len(events) == 2:  # nothing but started and claimed
            self.tape.load(events)
        else:
            self.tape.load(history.effective(events))
            self._replayed = history.summarise(events)
            self.inbox_seen = self._replayed.consumed
            self.sendings = self._replayed.sendings
        try:
            self.arguments = decode_call(self.definition.signature, self.started.input or b"{}", self.execution.codec)
        except Exception as error:  # noqa: BLE001 - sorted out there
            self._caught(error)

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

    def _caught(self, error: BaseException) -> None:
        """Take an exception out of body code or its log: the run cannot go on here, and has had no effect yet."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._leave()
            raise error
        closing.park_for(self, error, self._replayed)

    # -- messages ------------------------------------------------------------------------------------------------

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
        if change is None:
            self.host.turns.join(self)
            return
        self.host.changed(self, change, last)
        self._leave()

    def refused(self, reason: str) -> None:
        """The run is somebody else's now."""
        self.drop(reason)

    def unstorable(self, events: Sequence[Event], change: Change | None, error: Exception) -> None:
        """An event was refused for its own contents; the others wait behind it."""
        closing.replace_unstorable(self, events, change, error)

    # -- idleness ------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Last stage of a turn: end the run, once its body has ended and nothing is under way; or be idle."""
        recorder, execution = self.recorder, self.execution
        if self.tape.undelivered or self._holds or self.leaving or recorder.closed or not self._live:
            return
        if execution.unrecorded and execution.holding:
            return
        if execution.outcome is not None:
            if not self.attempts.running and not recorder.busy:
                closing.finish(self)
        elif self.yield_until and not (self.attempts.running or recorder.busy):
            self.attempts.abandon()
            closing.release(self, EventType.RUN_RELEASED, self.yield_until, "somebody asked for it")
        elif self.idle or not self.attempts.running:
            self._note_idle()

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
