"""What a worker needs to know about a log before it replays it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event

_FROM_INBOX = frozenset({EventType.CANCEL_REQUESTED})
_ATTEMPTS = frozenset({EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT, EventType.STEP_HEARTBEAT})
_ANSWERS = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.STEP_CANCELLED})


@dataclass(slots=True)
class Summary:
    """Findings about a recorded log."""

    voided: set[int] = field(default_factory=set)
    """Events an operator's retry took back."""
    void_failures: set[int] = field(default_factory=set)
    """Those of them whose operation starts over."""
    open_ops: set[str] = field(default_factory=set)
    """Operations with recorded attempts and no recorded answer: the body must ask for them."""
    consumed: int = 0
    """Number of the last inbox message that was taken in."""
    deadline_passed: bool = False
    pythons: set[str] = field(default_factory=set)
    """Minor versions of the interpreters that worked on it."""


FRESH = Summary()
"""Of a log that holds nothing but start and claim. Never changed."""


def summarise(events: Sequence[Event]) -> Summary:
    """Read a log once."""
    summary = Summary()
    for event in events:
        if event.type == EventType.RUN_REOPENED:
            _take_back(summary, event, events)
        elif event.type == EventType.RUN_CLAIMED:
            python = _detail(event).get("python")
            if isinstance(python, str):
                summary.pythons.add(python)
        elif event.type in _FROM_INBOX:
            summary.consumed = max(summary.consumed, int(_detail(event).get("n", 0)))
        elif event.type == EventType.DEADLINE_PASSED:
            summary.deadline_passed = True
    for event in events:
        if event.op is None or event.seq in summary.voided:
            continue
        if event.type in _ATTEMPTS:
            summary.open_ops.add(event.op)
        elif event.type in _ANSWERS:
            summary.open_ops.discard(event.op)
    return summary


def _take_back(summary: Summary, reopened: Event, events: Sequence[Event]) -> None:
    """Void the terminal event, the failure that caused it, and the records of what that failure led to."""
    detail = _detail(reopened)
    failed_seq = int(detail.get("failed_seq", 0))
    cause = detail.get("cause_seq")
    summary.voided.add(failed_seq)
    if cause is None:
        return
    summary.voided.add(int(cause))
    summary.void_failures.add(int(cause))
    followed = set(detail.get("followed_by", ()))
    summary.voided.update(event.seq for event in events if event.op in followed and int(cause) < event.seq < failed_seq)


def _detail(event: Event) -> dict[str, Any]:
    found = msgspec.json.decode(event.detail) if event.detail else {}
    return found if isinstance(found, dict) else {}
