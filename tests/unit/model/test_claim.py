"""Deaths are counted from the end of a log: claims after which nothing was recorded."""

from __future__ import annotations

import pytest

from perdure.model.claim import count_deaths
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.status import EventType

CLAIM, BACK, WAIT = EventType.RUN_CLAIMED, EventType.RUN_RELEASED, EventType.RUN_WAITING
STEP, CANCEL, RESUMED = EventType.STEP_COMPLETED, EventType.CANCEL_REQUESTED, EventType.RUN_RESUMED


@pytest.mark.parametrize(
    "log, deaths",
    [
        ([], 0),
        ([CLAIM], 1),
        ([CLAIM, CLAIM, CLAIM], 3),
        ([CLAIM, STEP, CLAIM, CLAIM], 2),
        ([CLAIM, BACK, CLAIM], 1),
        ([CLAIM, CLAIM, WAIT], 1),
        ([CLAIM, CANCEL, CLAIM], 2),
        ([CLAIM, CLAIM, RESUMED], 0),
        ([CLAIM, CLAIM, RESUMED, CLAIM], 1),
    ],
)
def test_deaths_are_claims_after_which_nothing_was_recorded(log: list[EventType], deaths: int) -> None:
    drafts = [Draft(kind, at) for at, kind in enumerate(log)]
    assert count_deaths(seal("run", EMPTY_TAIL, drafts, 1, 1) if drafts else ()) == deaths
