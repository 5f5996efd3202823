"""What a worker needs to know about a log before it replays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel.kinds.step import StepOperation
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event

_UPGRADED: str = EventType.RUN_UPGRADED.value
_TURNS = frozenset({_UPGRADED, EventType.RUN_FORKED.value})
"""Events because of which a body is not to see all that stands before them."""
_FROM_INBOX = frozenset({EventType.CANCEL_REQUESTED, EventType.YIELD_REQUESTED, EventType.STEP_RETURNED})
_STEP_ENDS = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.STEP_CANCELLED})


class Summary(msgspec.Struct):
    """Findings about a recorded log."""

    voided: set[int] = msgspec.field(default_factory=set)
    """Events an operator's retry took back."""
    void_failures: set[int] = msgspec.field(default_factory=set)
    """Those of them whose operation starts over."""
    doubtful: set[int] = msgspec.field(default_factory=set)
    """Events that count only if the body asks for exactly that when they come; see `perdure.kernel.failure`."""
    consumed: int = 0
    """Number of the last inbox message that was taken in."""
    requests: set[str] = msgspec.field(default_factory=set)
    """Ids of the requests that were taken in: a send whose answer was lost may have been done twice."""
    deadline_passed: bool = False
    pythons: set[str] = msgspec.field(default_factory=set)
    """Minor versions of the interpreters that worked on it."""
    sent: dict[str, Event] = msgspec.field(default_factory=dict)
    """By operation: steps that are executed elsewhere and were neither answered nor given up."""
    sendings: dict[str, int] = msgspec.field(default_factory=dict)
    """By operation: how often it was sent elsewhere, whatever came of it and even if a body is not to see it."""


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
            note_message(summary, event)
        elif event.type == EventType.DEADLINE_PASSED:
            summary.deadline_passed = True
        elif event.type == EventType.RUN_FORKED:
            summary.sent, summary.sendings = {}, {}  # they are the other run's
        elif event.op is not None:
            _note_step(summary, event.op, event)
    return summary


def _note_step(summary: Summary, op: str, event: Event) -> None:
    if event.type == EventType.STEP_SENT:
        summary.sent[op] = event
        summary.sendings[op] = summary.sendings.get(op, 0) + 1
    elif summary.sent and event.type in _STEP_ENDS:
        summary.sent.pop(op, None)


def effective(events: Sequence[Event]) -> Sequence[Event]:
    """Return a log as a body is to see it.

    An upgrade may have dropped what operations recorded from some place on, and may have said what steps recorded
    before it are called now. Both hold for every later replay, unless the upgrade was taken back. What a fork's
    original has sent elsewhere is not executed for the fork.
    """
    turns = [event for event in events if event.type in _TURNS]
    if not turns:
        return events
    upgrades = [event for event in turns if event.type == _UPGRADED]
    forked = max((event.seq for event in turns if event.type == EventType.RUN_FORKED), default=0)
    events = [one for one in events if one.seq > forked or one.type != EventType.STEP_SENT]
    details = {event.seq: _detail(event) for event in upgrades}
    taken_back = {detail.get("reverts") for detail in details.values()}
    for seq, detail in details.items():
        if seq not in taken_back:
            first, names = detail.get("dropped_from"), detail.get("renamed") or {}
            if first is not None:
                events = [one for one in events if one.op is None or not first <= one.seq < seq]
            if names:
                events = [_renamed(one, names) if one.seq < seq else one for one in events]
    return events


def _renamed(event: Event, names: dict[str, str]) -> Event:
    name = names.get(event.name or "")
    return event if name is None or event.kind != StepOperation.kind else event._replace(name=name)


def note_message(summary: Summary, event: Event) -> None:
    """Take in an event that took in a message; void it if it repeats a request."""
    detail = _detail(event)
    summary.consumed = max(summary.consumed, int(detail.get("n", 0)))
    request = detail.get("request")
    if isinstance(request, str):
        if request in summary.requests:
            summary.voided.add(event.seq)
        summary.requests.add(request)


def _take_back(summary: Summary, reopened: Event, events: Sequence[Event]) -> None:
    """Void the terminal event and the failures that caused it; put in doubt what the body asked for after them."""
    detail = _detail(reopened)
    failed_seq = int(detail.get("failed_seq", 0))
    summary.voided.add(failed_seq)
    causes = [int(seq) for seq in detail.get("cause_seqs", ())]
    if not causes:
        return
    summary.voided.update(causes)
    summary.void_failures.update(causes)
    followed = set(detail.get("followed_by", ()))
    between = range(causes[0] + 1, failed_seq)
    summary.doubtful.update(event.seq for event in events if event.op in followed and event.seq in between)


def _detail(event: Event) -> dict[str, Any]:
    found = msgspec.json.decode(event.detail) if event.detail else {}
    return found if isinstance(found, dict) else {}
