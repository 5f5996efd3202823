"""How a run leaves its worker: ended, waiting, handed back, or parked. Each is one event and one change of the row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from perdure.codec.exception import encode_exception
from perdure.errors import CodecError, Diverged, RunTimedOut
from perdure.kernel.loop import Spinning
from perdure.kernel.operation import Operation
from perdure.model.event import Draft, draft_of
from perdure.model.status import TERMINAL, TRANSITIONS, EventType, Status
from perdure.model.write import Change
from perdure.runtime.errands import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.kernel.execution import Execution
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.runtime.history import Summary
    from perdure.runtime.host import Host
    from perdure.runtime.recorder import Recorder
    from perdure.runtime.tape import Tape

DETAIL_MAX = 500


class Departing(Protocol):
    """A run that may leave its worker."""

    id: str
    row: RunRow
    host: Host
    execution: Execution
    recorder: Recorder
    tape: Tape
    definition: WorkflowDefinition
    inbox_seen: int
    gone: bool
    leaving: bool
    replaced_at: int

    def drop(self, reason: str) -> None:
        """Lose the run."""
        ...

    def hand_back(self, reason: str, *, fatal: bool = False) -> None:
        """Give the run to whoever claims it next."""
        ...


class Deadline(Operation):
    """The run's own time limit, as something to wake up for. Not an operation of the body: it has no id."""

    __slots__ = ()
    kind = "deadline"

    def __init__(self, run: Execution) -> None:
        super().__init__(run, "", "deadline")

    def fired(self, now: int) -> Draft:
        """Return the event that records that the time is over."""
        return Draft(EventType.DEADLINE_PASSED, now)


_RUNNING: str = Status.RUNNING.value
_COMPLETED = EventType.RUN_COMPLETED
_WAYS: dict[str, tuple[str, str, str]] = {
    kind: (kind.value, after.value, f"{Status.RUNNING}>{after}")
    for (before, kind), after in TRANSITIONS.items()
    if before is Status.RUNNING
}
"""Every event by which a run leaves its worker: its name, the state after it, and both states as they are recorded."""


def _leave(
    run: Departing, kind: EventType, *, payload: bytes | None = None, detail: dict[str, Any] | None = None,
    note: str | None = None, wake_at: int | None = None,
) -> None:  # fmt: skip
    now = run.host.now()
    event, after, state = _WAYS[kind]
    data = msgspec.json.encode({key: _storable(value) for key, value in detail.items()}) if detail else None
    draft = Draft(event, now, state=state, detail=data, payload=payload)
    epoch = run.recorder.epoch
    note = note_of(note)
    run.leaving = True
    caller = run.execution.caller
    tell = None if caller is None or after not in TERMINAL else report(caller, run.id, now)
    run.tape.record_last(draft, Change(_RUNNING, epoch, after, epoch, None, wake_at, run.inbox_seen, note, now, tell))


def note_of(text: str | None) -> str | None:
    """Return what a run's row says of why it stands where it does: one bounded text, or nothing."""
    if not text:
        return None
    return str(_storable(text if len(text) <= DETAIL_MAX else f"{text[: DETAIL_MAX - 1]}…"))


def _storable(value: Any) -> Any:
    """Return text for people as every database can store it; anything else as it is."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def finish(run: Departing) -> None:
    """Append the terminal event that the body's outcome calls for."""
    outcome = run.execution.outcome
    assert outcome is not None  # noqa: S101 - the caller has looked
    if outcome.error is None:
        try:
            payload = run.execution.codec.encode(outcome.value, run.definition.signature.returns)
        except CodecError as error:
            _fail(run, result_error(run, error))
            return
        _leave(run, _COMPLETED, payload=payload)
    elif outcome.cancelled and run.execution.timed_out:
        limit = run.row.deadline_at
        seconds = None if limit is None else (limit - run.row.created_at) / 1_000_000
        _fail(run, RunTimedOut(run.id, timeout_s=seconds))
    elif outcome.cancelled and run.execution.cancel_requested:
        reason = run.execution.cancel_reason
        _leave(run, EventType.RUN_CANCELLED, detail={"reason": reason} if reason else None, note=reason)
    elif run.host.is_displaced_by(outcome.error):
        release(run, EventType.RUN_RELEASED, run.host.now(), str(outcome.error))
    else:
        _fail(run, outcome.error)


def result_error(run: Departing, error: CodecError) -> CodecError:
    """Say whose result cannot be stored."""
    text = f"the result of workflow {run.row.workflow!r} cannot be stored: {error}"
    return CodecError(text, path=error.path, type_name=error.type_name, run_id=run.id)


def _fail(run: Departing, error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        error = RuntimeError("the body ended with CancelledError although nobody had cancelled it")
    cause = run.execution.failures.cause(error)
    detail: dict[str, Any] = {}
    if cause is not None:
        detail = {"cause_seqs": cause.seqs, "cause_op": cause.op, "followed_by": cause.followed_by}
    note = f"{type(error).__name__}: {_text(error)}"
    _leave(run, EventType.RUN_FAILED, payload=_encode(run, error), detail=detail, note=note)


def _encode(run: Departing, error: BaseException) -> bytes:
    if not isinstance(error, Exception):
        error = RuntimeError(f"the body ended with {type(error).__name__}: {_text(error)}")
    return encode_exception(error, run.execution.codec)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not lose the failure
        return "(its text cannot be read)"


def park(run: Departing, reason: str, remedy: str, **facts: Any) -> None:
    """Stop the run until a person acts; say why and what helps."""
    if run.leaving or run.gone or run.recorder.closed:
        return
    run.host.logger.warning("run %s is parked: %s", run.id, reason)
    _leave(run, EventType.RUN_PARKED, detail={"reason": reason, "help": remedy, **facts}, note=reason)


def mending(run: Departing) -> str:
    """Say how a run gets mended code: one that is bound to a version keeps to it until it is upgraded."""
    if run.row.version_id:
        return f"mend the code in a new version, then perdure upgrade plan --id {run.id} --to VERSION"
    return f"fix the code, then perdure retry {run.id}"


def park_for(run: Departing, error: BaseException, log: Summary) -> None:
    """Park a run that cannot go on because of ``error``, which came out of its body's loop or its log."""
    if isinstance(error, Diverged):
        park_diverged(run, error, log)
    elif isinstance(error, CodecError):
        what = f"the recorded result of step {error.step!r}" if error.step else "a recorded value"
        park(run, f"{what} cannot be read: {error}", mending(run))
    elif isinstance(error, Spinning):
        text = "the body runs without end and never waits for anything"
        park(run, text, mending(run))
    else:
        run.host.logger.error("run %s: internal error", run.id, exc_info=error)
        park(
            run,
            f"internal error: {type(error).__name__}: {_text(error)}",
            f"perdure retry {run.id}, and please report it",
        )


def park_diverged(run: Departing, error: Diverged, log: Summary) -> None:
    """Park a run whose log does not fit its code, before any effect."""
    here = run.host.python
    others = sorted(log.pythons - {here})
    if others:
        reason = f"incompatible: recorded on Python {', '.join(others)}, diverges on {here}: {error.text}"
        park(run, reason, f"run a worker on Python {others[-1]}, then perdure retry {run.id}")
        return
    remedy = mending(run) if run.row.version_id else "restore the code it began with, then perdure retry"
    park(run, f"diverged: {error.text}", remedy, recorded=error.expected, requested=error.found)


def release(
    run: Departing, kind: EventType, wake_at: int | None, reason: str | None = None, *, fatal: bool = False
) -> None:
    """Give the run up in good order; it goes on at ``wake_at``, wherever. A fatal reason counts as a worker's death."""
    detail: dict[str, Any] = {"wake_at": wake_at}
    if reason:
        detail["reason"] = reason
    if fatal:
        detail["fatal"] = True
    _leave(run, kind, detail=detail, note=reason if fatal else None, wake_at=wake_at)


def replace_unstorable(run: Departing, events: Sequence[Event], change: Change | None, error: Exception) -> None:
    """The database refuses the first event's value: record a `CodecError` in its place. A seq is never skipped."""
    refused = events[0]
    if refused.seq == run.replaced_at:
        run.host.logger.error("run %s: the database refuses whatever is recorded: %s", run.id, error)
        run.drop("nothing can be recorded")
        return
    run.replaced_at = refused.seq
    seen = refused.seq in run.tape.early
    failure = _encode(run, CodecError(f"the database refuses the value: {error}", run_id=run.id))
    run.leaving = False
    run.tape.rewind(refused)
    if seen:
        # The body has gone on with what is not to be. It is replayed, wherever: nothing that followed was recorded.
        run.recorder.leave_messages()
        run.tape.record(_without_value(draft_of(refused), failure))
        run.hand_back("the database refuses a result that the body had gone on with")
        return
    if change is not None and refused.type == EventType.RUN_COMPLETED:
        change = replace(change, after=Status.FAILED, detail="CodecError: the database refuses the result")
    for event in events:
        draft = draft_of(event)
        if event is refused:
            draft = _without_value(draft, failure)
        ends = event is events[-1] and change is not None
        run.leaving |= ends
        run.tape.record_again(draft, change if ends else None)


def _without_value(draft: Draft, failure: bytes) -> Draft:
    kind, payload, state = draft.type, draft.payload, draft.state
    if kind == EventType.STEP_COMPLETED:
        kind, payload = EventType.STEP_FAILED, failure
    elif kind == EventType.RUN_COMPLETED:
        kind, payload, state = EventType.RUN_FAILED, failure, f"{Status.RUNNING}>{Status.FAILED}"
    elif payload is not None and len(payload) > len(failure):
        payload = failure if kind in (EventType.STEP_FAILED, EventType.RUN_FAILED) else None
    return replace(draft, type=kind, state=state, input=None, payload=payload)
