"""The life cycle of a run: ten states and the one table of legal transitions.

The store applies a transition only as a compare-and-set on the state before it, so what this table does not
list cannot happen. The diagram in ``docs/explanation/life-cycle.md`` is checked against it by a test.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where a run stands. Terminal states have no successor, except that an operator may reopen ``failed``."""

    PENDING = "pending"
    """Recorded, not yet claimed: new, delayed, queued or handed back."""
    RUNNING = "running"
    """Owned by a live worker."""
    WAITING = "waiting"
    """Nothing to do until a timer, a retry or a message is due; owns nothing."""
    PAUSED = "paused"
    """Stopped by an operator; resumes by command."""
    PARKED = "parked"
    """Cannot go on without a person or new code; always with a reason."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    CONTINUED = "continued"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows."""
        return self in TERMINAL


TERMINAL = frozenset(
    {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TERMINATED, Status.CONTINUED},
)
LIVE = frozenset(Status) - TERMINAL
GOING_ON = LIVE - {Status.PARKED}
"""Neither ended nor in need of a person."""


class EventType(StrEnum):
    """What a row of the log says happened."""

    RUN_STARTED = "run_started"
    RUN_CLAIMED = "run_claimed"
    RUN_RELEASED = "run_released"
    """Handed back by its owner while there is still something to do now."""
    RUN_WAITING = "run_waiting"
    """Handed back by its owner with nothing to do before ``wake_at``."""
    RUN_PAUSED = "run_paused"
    RUN_RESUMED = "run_resumed"
    RUN_PARKED = "run_parked"
    RUN_UNPARKED = "run_unparked"
    RUN_REOPENED = "run_reopened"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    RUN_TERMINATED = "run_terminated"
    RUN_CONTINUED = "run_continued"
    RUN_UPGRADED = "run_upgraded"
    """It was bound to another version; a new epoch begins, as with a claim."""
    RUN_FORKED = "run_forked"
    """What stands before it was copied from another run."""
    CANCEL_REQUESTED = "cancel_requested"
    YIELD_REQUESTED = "yield_requested"
    """Somebody asks the owner to hand the run back as soon as no step is under way."""
    DEADLINE_PASSED = "deadline_passed"
    STEP_COMPLETED = "step_completed"
    STEP_FAILED = "step_failed"
    STEP_CANCELLED = "step_cancelled"
    """The body gave the step up while an attempt was under way; kept for the audit, never delivered."""
    STEP_ATTEMPT_FAILED = "step_attempt_failed"
    STEP_INTENT = "step_intent"
    """An at-most-once attempt is about to begin."""
    STEP_HEARTBEAT = "step_heartbeat"
    STEP_SENT = "step_sent"
    """The step is for another queue: a run of its own is to execute it there."""
    STEP_RETURNED = "step_returned"
    """The run that executes a step has ended."""
    TIMER_FIRED = "timer_fired"
    CHECKPOINT_REACHED = "checkpoint_reached"
    VALUE_PUBLISHED = "value_published"
    PATCH_TAKEN = "patch_taken"
    """The run takes a change that was made to its workflow."""


_S, _E = Status, EventType
_OPEN = (_S.PENDING, _S.RUNNING, _S.WAITING, _S.PAUSED, _S.PARKED)

TRANSITIONS: dict[tuple[Status | None, EventType], Status] = {
    (None, _E.RUN_STARTED): _S.PENDING,
    (_S.PENDING, _E.RUN_CLAIMED): _S.RUNNING,
    (_S.WAITING, _E.RUN_CLAIMED): _S.RUNNING,
    (_S.RUNNING, _E.RUN_CLAIMED): _S.RUNNING,  # take-over from a dead worker
    (_S.RUNNING, _E.RUN_RELEASED): _S.PENDING,
    (_S.RUNNING, _E.RUN_WAITING): _S.WAITING,
    (_S.PENDING, _E.RUN_PARKED): _S.PARKED,
    (_S.WAITING, _E.RUN_PARKED): _S.PARKED,
    (_S.RUNNING, _E.RUN_PARKED): _S.PARKED,
    (_S.PARKED, _E.RUN_UNPARKED): _S.PENDING,
    (_S.PENDING, _E.RUN_PAUSED): _S.PAUSED,
    (_S.WAITING, _E.RUN_PAUSED): _S.PAUSED,
    (_S.RUNNING, _E.RUN_PAUSED): _S.PAUSED,
    (_S.PAUSED, _E.RUN_RESUMED): _S.PENDING,
    (_S.RUNNING, _E.RUN_COMPLETED): _S.COMPLETED,
    (_S.RUNNING, _E.RUN_FAILED): _S.FAILED,
    (_S.RUNNING, _E.RUN_CONTINUED): _S.CONTINUED,
    **{(state, _E.RUN_CANCELLED): _S.CANCELLED for state in _OPEN},
    **{(state, _E.RUN_TERMINATED): _S.TERMINATED for state in _OPEN},
    (_S.FAILED, _E.RUN_REOPENED): _S.PENDING,
    **{(state, _E.RUN_UPGRADED): _S.PENDING for state in _OPEN},  # of a running one only if its worker is dead
    (_S.PAUSED, _E.RUN_UPGRADED): _S.PAUSED,
    **{(state, _E.RUN_FORKED): _S.PENDING for state in _OPEN},
}


def next_status(before: Status | None, event: EventType) -> Status:
    """Return the state that ``event`` leads to from ``before``.

    Raises:
        ValueError: if the table does not list the pair.
    """
    try:
        return TRANSITIONS[before, event]
    except KeyError:
        message = f"illegal transition: {event} in state {before or 'none'}"
        raise ValueError(message) from None
