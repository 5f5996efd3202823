"""What a log says at one reading: which events count, which are void, which messages were taken in."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.event import EMPTY_TAIL, Draft, Event, seal
from perdure.model.status import EventType
from perdure.runtime.history import summarise


def log(*facts: tuple[EventType, dict[str, Any] | list[int] | None, str | None]) -> tuple[Event, ...]:
    drafts = [
        Draft(kind, at, op, detail=None if detail is None else msgspec.json.encode(detail))
        for at, (kind, detail, op) in enumerate(facts)
    ]
    return seal("run", EMPTY_TAIL, drafts, 1, 1)


def test_a_request_that_was_sent_twice_counts_once() -> None:
    events = log(
        (EventType.CANCEL_REQUESTED, {"n": 1, "request": "a"}, None),
        (EventType.CANCEL_REQUESTED, {"n": 2, "request": "a"}, None),
        (EventType.CANCEL_REQUESTED, {"n": 3}, None),
    )
    summary = summarise(events)
    assert summary.consumed == 3
    assert summary.voided == {2}


def test_the_interpreters_that_worked_on_a_run_are_known() -> None:
    events = log(
        (EventType.RUN_CLAIMED, {"python": "3.11"}, None),
        (EventType.RUN_CLAIMED, {"python": "3.13"}, None),
        (EventType.RUN_CLAIMED, {}, None),
        (EventType.RUN_CLAIMED, [1], None),
        (EventType.DEADLINE_PASSED, None, None),
    )
    summary = summarise(events)
    assert summary.pythons == {"3.11", "3.13"}
    assert summary.deadline_passed


def test_a_retry_voids_the_end_and_the_failures_behind_it() -> None:
    events = log(
        (EventType.RUN_STARTED, None, None),
        (EventType.STEP_FAILED, None, "1"),
        (EventType.STEP_COMPLETED, None, "2"),
        (EventType.STEP_COMPLETED, None, "3"),
        (EventType.RUN_FAILED, None, None),
        (EventType.RUN_REOPENED, {"failed_seq": 5, "cause_seqs": [2], "followed_by": ["3"]}, None),
    )
    summary = summarise(events)
    assert summary.voided == {2, 5}
    assert summary.void_failures == {2}
    assert summary.doubtful == {4}


def test_a_retry_of_a_failure_of_the_body_itself_voids_the_end_only() -> None:
    events = log(
        (EventType.RUN_STARTED, None, None),
        (EventType.STEP_FAILED, None, "1"),
        (EventType.RUN_FAILED, None, None),
        (EventType.RUN_REOPENED, {"failed_seq": 3}, None),
    )
    summary = summarise(events)
    assert summary.voided == {3}
    assert not summary.void_failures
    assert not summary.doubtful
