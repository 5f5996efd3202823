"""What a run waits for, read from its row and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.api.reading import moment
from perdure.model.status import EventType, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from perdure.api.reading import Event, RunInfo

_ANSWERS = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.STEP_CANCELLED})
_ATTEMPTS = frozenset(
    {EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT, EventType.STEP_HEARTBEAT, EventType.STEP_SENT}
)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a run waits for.

    Attributes:
        kind: ``step``, ``run`` (which executes a step on another queue), ``timer``, ``worker``, ``time`` (a delayed
            start) or ``person``.
        name: name of the step; the queue for a worker.
        op: id of the operation, if it has one.
        attempt: number of the attempt under way or to come.
        due: when it is due, if that is known.
        detail: what else there is to say: the error of the last attempt, why it is parked, the command that helps.
    """

    kind: str
    name: str | None = None
    op: str | None = None
    attempt: int | None = None
    due: datetime | None = None
    detail: str | None = None


def waits_of(info: RunInfo, events: Sequence[Event], now: datetime) -> list[Wait]:
    """Return what a run that has not ended waits for.

    A timer leaves no trace in the log before it fires, and an attempt of a step none before it ends; so of a waiting
    run the next time is known, and of a running one its worker. A run that waits for another one wakes up now and then
    to look: that time is none to tell.
    """
    if info.status.is_terminal:
        return []
    if info.status in (Status.PARKED, Status.PAUSED):
        return [_person(info, events)]
    steps = _open_steps(events)
    if info.status == Status.PENDING:
        later = info.wake_at is not None and info.wake_at > now
        first = Wait(kind="time", due=info.wake_at) if later else Wait(kind="worker", name=info.queue)
        return [first, *steps]
    told = {one.due for one in steps}
    looks = any(one.kind == "run" for one in steps)
    if info.status == Status.WAITING and info.wake_at is not None and not looks and info.wake_at not in told:
        return [*steps, Wait(kind="timer", due=info.wake_at)]
    if info.status == Status.RUNNING and not steps:
        return [Wait(kind="step", detail=f"executing on worker {info.owner}")]
    return steps


def _person(info: RunInfo, events: Sequence[Event]) -> Wait:
    facts: dict[str, Any] = next((one.detail for one in reversed(events) if one.type == EventType.RUN_PARKED), {})
    reason = facts.get("reason") or info.detail or info.status.value
    remedy = facts.get("help")
    return Wait(kind="person", detail=f"{reason}; {remedy}" if remedy else str(reason))


def _open_steps(events: Sequence[Event]) -> list[Wait]:
    found: dict[str, Wait] = {}
    for event in events:
        op = event.op
        if op is None:
            continue
        if event.type in _ANSWERS:
            found.pop(op, None)
        elif event.type in _ATTEMPTS:
            found[op] = _step(event, op)
    return list(found.values())


def _step(event: Event, op: str) -> Wait:
    if event.type == EventType.STEP_ATTEMPT_FAILED:
        due = event.detail.get("next_at")
        return Wait(
            kind="step", name=event.name, op=op, attempt=event.attempt + 1, detail=f"after {event.error}",
            due=None if due is None else moment(due),
        )  # fmt: skip
    if event.type == EventType.STEP_SENT:
        where = f"executed by run {event.detail['run']} on queue {event.detail['queue']}"
        return Wait(kind="run", name=event.name, op=op, detail=where)
    told = None if event.result is None else f"says {event.result!r}"
    return Wait(kind="step", name=event.name, op=op, attempt=event.attempt, detail=told)
