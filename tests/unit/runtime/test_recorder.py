"""One run's way into the store: places are given once, time never goes back, and a refusal is told to the run."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import GuardError, StoreError
from perdure.model.event import EMPTY_TAIL, Draft, broken_link
from perdure.model.status import EventType, Status
from perdure.model.write import COMMITTED, Append, Change, Conflict, Failed, Missing
from perdure.runtime.ids import CommitIds
from perdure.runtime.recorder import Place, Recorder
from perdure.runtime.tape import Outbox, Tape


class Ends:
    """A writer that keeps what it gets, and a run that keeps what it is told."""

    def __init__(self) -> None:
        self.sent: list[Append] = []
        self.told: list[tuple[Any, ...]] = []

    def submit(self, write: Append, submitter: Any) -> None:
        self.sent.append(write)

    def recorded(self, last: Any, change: Any) -> None:
        self.told.append(("recorded", last.seq, change))

    def refused(self, reason: str) -> None:
        self.told.append(("refused", reason))

    def unstorable(self, events: Any, change: Any, error: Exception) -> None:
        self.told.append(("unstorable", [event.seq for event in events], error))


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def recorder(ends: Ends) -> Recorder:
    anything: Any = ends
    return Recorder("run", 1, EMPTY_TAIL, anything, CommitIds(), anything)


def draft(at: int = 10) -> Draft:
    return Draft(EventType.STEP_COMPLETED, at, "1", "step", "s", 1)


CHANGE = Change(Status.RUNNING, 1, Status.COMPLETED, 1, None, None, 0, None, 10)


def test_time_never_goes_back_in_a_log(ends: Ends, recorder: Recorder) -> None:
    events = [recorder.add(draft(at)) for at in (10, 5, 20)]
    assert [event.at for event in events] == [10, 10, 20]
    assert [event.seq for event in events] == [1, 2, 3]
    assert broken_link("run", EMPTY_TAIL, events) is None


def test_one_append_is_in_flight_and_the_rest_goes_with_the_next(ends: Ends, recorder: Recorder) -> None:
    for _ in range(3):
        recorder.add(draft())
    assert [len(append.events) for append in ends.sent] == [1]
    recorder.settled(ends.sent[0], COMMITTED)
    assert [len(append.events) for append in ends.sent] == [1, 2]
    assert recorder.busy
    recorder.settled(ends.sent[1], COMMITTED)
    assert not recorder.busy
    assert ends.told == [("recorded", 1, None), ("recorded", 3, None)]


@pytest.mark.parametrize("outcome, reason", [(Conflict(7), "moved on to event 7"), (Missing(), "it was purged")])
def test_a_run_that_lost_its_log_sends_nothing_more(ends: Ends, recorder: Recorder, outcome: Any, reason: str) -> None:
    recorder.add(draft())
    recorder.add(draft())
    recorder.settled(ends.sent[0], outcome)
    assert len(ends.told) == 1
    assert ends.told[0][0] == "refused"
    assert reason in ends.told[0][1]
    assert recorder.closed
    assert len(ends.sent) == 1


@pytest.mark.parametrize("outcome", [COMMITTED, Conflict(7), Failed(StoreError("no"))])
def test_a_run_that_left_is_told_nothing(ends: Ends, recorder: Recorder, outcome: Any) -> None:
    recorder.add(draft())
    recorder.release()
    recorder.settled(ends.sent[0], outcome)
    assert ends.told == []
    assert len(ends.sent) == 1


def test_of_a_refused_append_the_one_event_is_found(ends: Ends, recorder: Recorder) -> None:
    error = StoreError("too big")
    recorder.add(draft())
    for _ in range(2):
        recorder.add(draft())
    recorder.add(draft(), CHANGE)
    recorder.settled(ends.sent[0], COMMITTED)
    assert len(ends.sent[1].events) == 3
    recorder.settled(ends.sent[1], Failed(error))
    assert [event.seq for event in ends.sent[2].events] == [2]
    recorder.settled(ends.sent[2], COMMITTED)
    recorder.settled(ends.sent[3], Failed(error))
    assert ends.told[-1] == ("unstorable", [3, 4], error)


def test_nothing_is_put_on_the_tape_of_a_closed_log(ends: Ends, recorder: Recorder) -> None:
    tape = Tape(recorder, Outbox())
    tape.record(draft())
    assert tape.record_early(draft())
    assert tape.early == {2: 10}
    tape.record_last(draft(), CHANGE)
    tape.record(draft())
    assert not tape.record_early(draft())
    assert [event.seq for event in tape.undelivered] == [1, 2]
    tape.confirm(1)
    assert (tape.durable, tape.early) == (1, {2: 10})
    tape.confirm(2)
    assert tape.early == {}


def test_a_tape_goes_back_to_before_what_could_not_be_stored(ends: Ends, recorder: Recorder) -> None:
    tape = Tape(recorder, Outbox())
    tape.record(draft())
    recorder.settled(ends.sent[0], COMMITTED)
    tape.record(draft())
    refused = tape.undelivered[-1]
    recorder.settled(ends.sent[1], Failed(StoreError("no")))
    tape.rewind(refused)
    assert [event.seq for event in tape.undelivered] == [1]
    tape.record_again(draft(), None)
    tape.record_again(draft(), CHANGE)
    assert [event.seq for event in tape.undelivered] == [1, 2]
    assert recorder.closed


def test_a_place_is_lent_when_all_before_it_is_durable_and_what_comes_after_waits(
    ends: Ends, recorder: Recorder
) -> None:
    place = Place()
    recorder.add(draft())
    recorder.add(draft(), consumed=1)
    lent = recorder.add(draft(), place=place)
    recorder.add(draft(), consumed=2)
    recorder.settled(ends.sent[0], COMMITTED)
    assert not place.is_lent
    assert [event.seq for event in ends.sent[1].events] == [2]
    assert ends.sent[1].consumed == (1,)
    recorder.settled(ends.sent[1], COMMITTED)
    assert place.event.result() == lent
    assert len(ends.sent) == 2
    assert recorder.busy
    recorder.joined()
    assert ends.told[-1] == ("recorded", 3, None)
    assert [event.seq for event in ends.sent[2].events] == [4]
    assert ends.sent[2].consumed == (2,)
    recorder.settled(ends.sent[2], COMMITTED)
    recorder.add(draft())
    assert len(ends.sent) == 4


def test_a_place_whose_transaction_failed_is_filled_and_what_is_behind_it_is_chained_anew(
    ends: Ends, recorder: Recorder
) -> None:
    tape, places = Tape(recorder, Outbox()), [Place(), Place()]
    tape.reserve(draft(), places[0])
    tape.record(draft())
    tape.reserve(draft(), places[1])
    tape.record_message(draft(), 1)
    tape.record_last(draft(), CHANGE)
    tape.fill(places[0].event.result(), draft(11))
    assert [event.seq for event in tape.undelivered] == [1, 2, 3, 4]
    recorder.settled(ends.sent[0], COMMITTED)
    recorder.settled(ends.sent[1], COMMITTED)
    assert places[1].is_lent
    recorder.joined()
    sent = [*ends.sent[0].events, *ends.sent[1].events, places[1].event.result(), *ends.sent[2].events]
    assert broken_link("run", EMPTY_TAIL, sent) is None
    assert len(sent) == 5
    assert (ends.sent[2].consumed, ends.sent[2].change) == ((1,), CHANGE)
    assert recorder.closed


def test_a_place_that_somebody_else_has_taken_ends_the_ownership(ends: Ends, recorder: Recorder) -> None:
    places = [Place(), Place()]
    for place in places:
        recorder.add(draft(), place=place)
    recorder.outrun()
    assert ends.told == [("refused", "its log has moved on to event 1")]
    with pytest.raises(GuardError, match="too late"):
        places[1].event.result()
    assert ends.sent == []


def test_a_run_that_left_waits_for_no_place(ends: Ends, recorder: Recorder) -> None:
    lent, queued = Place(), Place()
    recorder.add(draft(), place=lent)
    recorder.add(draft(), place=queued)
    recorder.release()
    assert lent.is_lent
    assert not queued.is_lent
    recorder.joined()
    assert (ends.told, ends.sent) == ([], [])


def test_a_place_stays_one_when_an_event_before_it_could_not_be_stored(ends: Ends, recorder: Recorder) -> None:
    tape, place = Tape(recorder, Outbox()), Place()
    tape.record(draft())
    tape.reserve(draft(), place)
    refused = tape.undelivered[0]
    recorder.settled(ends.sent[0], Failed(StoreError("no")))
    assert ends.told[-1][1] == [1, 2]
    tape.rewind(refused)
    for _ in range(2):
        tape.record_again(draft(), None)
    recorder.settled(ends.sent[1], COMMITTED)
    assert place.event.result().seq == 2
