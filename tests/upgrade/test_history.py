"""A log as bodies see it after upgrades: some names are others, some records no longer count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure.model.claim import count_deaths
from perdure.model.event import EMPTY_TAIL, Draft, Event, seal
from perdure.model.status import EventType as Type
from perdure.runtime.history import effective, summarise


def log(*drafts: Draft) -> tuple[Event, ...]:
    return seal("run", EMPTY_TAIL, drafts, 0, 1)


def step(op: str, name: str, kind: str = "step") -> Draft:
    return Draft(Type.STEP_COMPLETED, 0, op, kind, name)


def upgrade(**facts: Any) -> Draft:
    return Draft(Type.RUN_UPGRADED, 0, detail=msgspec.json.encode(facts))


def seen(events: Sequence[Event]) -> list[str]:
    return [f"{event.op} {event.name}" for event in effective(events) if event.op is not None]


STARTED, CLAIMED = Draft(Type.RUN_STARTED, 0), Draft(Type.RUN_CLAIMED, 0)
CANCEL = Draft(Type.CANCEL_REQUESTED, 0, detail=b'{"n":1}')


def test_a_log_without_upgrades_is_given_as_it_is() -> None:
    events = log(STARTED, CLAIMED, step("0", "a"))
    assert effective(events) is events


@pytest.mark.parametrize(
    "drafts, wanted",
    [
        ((step("0", "a"), upgrade(renamed={"a": "b"}), step("1", "a")), ["0 b", "1 a"]),
        ((step("0", "a"), upgrade(renamed={"a": "b"}), upgrade(renamed={"b": "c"}), step("1", "b")), ["0 c", "1 b"]),
        ((step("0", "a"), step("1", "b"), upgrade(renamed={"a": "b", "b": "a"})), ["0 b", "1 a"]),
        ((step("0", "a", "checkpoint"), upgrade(renamed={"a": "b"})), ["0 a"]),
        ((step("0", "a"), upgrade(renamed={"a": "b"}), upgrade(reverts=4), step("1", "x")), ["0 a", "1 x"]),
        ((step("0", "a"), step("1", "b"), CANCEL, step("2", "c"), upgrade(dropped_from=4)), ["0 a"]),
        ((step("0", "a"), step("1", "b"), upgrade(dropped_from=4), step("1", "d")), ["0 a", "1 d"]),
        ((step("0", "a"), step("1", "b"), upgrade(dropped_from=4), upgrade(reverts=5)), ["0 a", "1 b"]),
        ((step("0", "a"), step("1", "b"), upgrade(dropped_from=4, renamed={"a": "z"})), ["0 z"]),
    ],
)  # fmt: skip
def test_names_and_records_are_read_as_the_upgrades_say(drafts: tuple[Draft, ...], wanted: list[str]) -> None:
    assert seen(log(STARTED, CLAIMED, *drafts)) == wanted


def test_what_is_of_the_run_itself_is_never_dropped() -> None:
    events = log(STARTED, CLAIMED, step("0", "a"), CANCEL, CLAIMED, upgrade(dropped_from=2))
    assert [event.seq for event in effective(events)] == [1, 2, 4, 5, 6]


def test_a_request_to_yield_is_taken_in_and_is_no_progress() -> None:
    asked = Draft(Type.YIELD_REQUESTED, 0, detail=b'{"n":3,"until":5}')
    events = log(STARTED, CLAIMED, asked, CLAIMED)
    assert summarise(events).consumed == 3
    assert count_deaths(events) == 2
    assert count_deaths(log(STARTED, CLAIMED, upgrade(), CLAIMED)) == 1
