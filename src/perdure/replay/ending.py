"""How a body ended, beside how its run was recorded to have ended."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any
from zlib import crc32

from perdure.codec.exception import encode_exception, read_failure
from perdure.codec.signature import digest
from perdure.codec.tagged.classes import type_name
from perdure.errors import CodecError, RunTimedOut
from perdure.model.status import EventType
from perdure.replay.shown import both, shorten
from perdure.replay.verdict import VerdictKind
from perdure.replay.watch import is_users

if TYPE_CHECKING:
    from perdure.codec.base import Codec
    from perdure.codec.exception import Failure
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.event import Event
    from perdure.replay.rehearsal import Rehearsal

_WORDS = {
    EventType.RUN_COMPLETED: "the run completes", EventType.RUN_FAILED: "the run fails",
    EventType.RUN_CANCELLED: "the run is cancelled",
}  # fmt: skip
Difference = tuple[VerdictKind, str, str]


def told(rehearsal: Rehearsal) -> str:
    """Return how the body's end would end the run, in words; what it waits for, if it has not ended."""
    if rehearsal.outcome is None:
        waits = ", ".join(f"{each.kind} {each.name!r} ({each.id})" for each in rehearsal.pending.values())
        return f"it waits for {waits or 'something that can never happen'}"
    kind, error = _end(rehearsal)
    return _WORDS[kind] if error is None else f"{_WORDS[kind]}: {described(error)}"


def described(error: BaseException) -> str:
    """Return class, text and place of an error in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a broken __str__ is not what is looked for
        text = "(its text cannot be read)"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_users(frame.filename)]
    where = f" ({users[-1].filename}:{users[-1].lineno})" if users else ""
    return f"{type_name(type(error))}: {shorten(text)}{where}"


def restless(seconds: float) -> str:
    """Return that a body did not come to rest."""
    return f"did not come to its next operation within {seconds:g} s"


def compare(end: Event, rehearsal: Rehearsal, definition: WorkflowDefinition, codec: Codec) -> Difference | None:
    """Return what is different between the recorded end of a run and that of its body; None if they agree."""
    was = EventType(end.type)
    if rehearsal.outcome is None:
        return VerdictKind.DIVERGES, f"that {_WORDS[was]}", f"the code goes on: {told(rehearsal)}"
    kind, error = _end(rehearsal)
    payload = b""
    if kind is EventType.RUN_COMPLETED:
        try:
            payload = codec.encode(rehearsal.outcome.value, definition.signature.returns)
        except CodecError as unstorable:
            kind, error = EventType.RUN_FAILED, unstorable
    if kind is not was:
        own = error is not None and rehearsal.failures.cause(error) is None
        verdict = VerdictKind.RAISES if own and kind is EventType.RUN_FAILED else VerdictKind.DIVERGES
        now = _WORDS[kind] if error is None else f"{_WORDS[kind]}: {described(error)}"
        return verdict, f"that {_WORDS[was]}", f"now {now}"
    if kind is EventType.RUN_FAILED:
        return _compare_failures(read_failure(end.payload or b"", codec), _failure(error, codec), rehearsal)
    rehearsal.trace.append(f"end {kind} {crc32(payload)}")
    if kind is EventType.RUN_COMPLETED and _differ(end.payload or b"", payload, codec):
        result, now = both(end.payload, payload)
        return VerdictKind.SAFE_ARGS_DIFFER, f"the result {result}", f"the code returns {now}"
    return None


def _end(rehearsal: Rehearsal) -> tuple[EventType, BaseException | None]:
    """Return the terminal event that the body's outcome calls for; as `perdure.runtime.closing.finish`."""
    outcome = rehearsal.outcome
    assert outcome is not None  # noqa: S101 - the callers have looked
    if outcome.error is None:
        return EventType.RUN_COMPLETED, None
    if outcome.cancelled and rehearsal.timed_out:
        return EventType.RUN_FAILED, RunTimedOut(rehearsal.run_id)
    if outcome.cancelled and rehearsal.cancel_requested:
        return EventType.RUN_CANCELLED, None
    if isinstance(outcome.error, asyncio.CancelledError):
        text = "the body ended with CancelledError although nobody had cancelled it"
        return EventType.RUN_FAILED, RuntimeError(text)
    return EventType.RUN_FAILED, outcome.error


def _failure(error: BaseException | None, codec: Codec) -> Failure:
    if not isinstance(error, Exception):
        error = RuntimeError(f"the body ended with {type(error).__name__}: {error}")
    return read_failure(encode_exception(error, codec), codec)


def _compare_failures(was: Failure, now: Failure, rehearsal: Rehearsal) -> Difference | None:
    rehearsal.trace.append(f"end failed {now.type_name}")
    if was.type_name != now.type_name:
        return VerdictKind.DIVERGES, f"that the run fails: {was.type_name}", f"now it fails: {now.type_name}"
    if was.message != now.message and not now.type_name.endswith("RunTimedOut"):
        return VerdictKind.SAFE_ARGS_DIFFER, f"the error {was.message!r}", f"the code raises {now.message!r}"
    return None


def _differ(was: bytes, now: bytes, codec: Any) -> bool:
    return was != now and digest(was, codec) != digest(now, codec)
