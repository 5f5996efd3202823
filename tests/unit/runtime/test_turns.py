"""Runs that go on together: stage by stage, each as if it were alone."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure.model.event import EMPTY_TAIL, Draft
from perdure.model.status import EventType, Status
from perdure.model.write import Change
from perdure.runtime.ids import CommitIds
from perdure.runtime.recorder import Recorder
from perdure.runtime.tape import Tape
from perdure.runtime.turns import Turns

CHANGE = Change(Status.RUNNING, 1, Status.COMPLETED, 1, None, None, 0, None, 10)


def draft(name: str) -> Draft:
    return Draft(EventType.STEP_COMPLETED, 10, "1", "step", name, 1)


class Run:
    """Tells what it is called for, and does in one of the stages what it is told to."""

    def __init__(self, name: str, told: list[str], **doing: Any) -> None:
        self.id = name
        self._told = told
        self._doing = doing

    def _stage(self, stage: str) -> bool:
        self._told.append(f"{stage} {self.id}")
        do = self._doing.get(stage)
        return True if do is None else bool(do())

    def hear(self) -> bool:
        return self._stage("hear")

    def think(self) -> bool:
        return self._stage("think")

    def act(self) -> None:
        self._stage("act")

    def rest(self) -> None:
        self._stage("rest")

    def pump_soon(self) -> None:
        self._told.append(f"pump {self.id}")


class Sink:
    """A writer that keeps what it gets, in order."""

    def __init__(self) -> None:
        self.appended: list[str] = []

    def submit(self, write: Any, submitter: Any) -> None:
        self.appended += [f"{write.run_id} {event.name or event.type}" for event in write.events]


@pytest.fixture
def turns() -> Turns:
    anything: Any = None
    return Turns(anything)


def tape(turns: Turns, sink: Any, run_id: str) -> Tape:
    return Tape(Recorder(run_id, 1, EMPTY_TAIL, sink, CommitIds(), sink), turns.outbox)


def raising(error: BaseException) -> Any:
    def do() -> bool:
        raise error

    return do


def test_a_stage_is_over_for_all_before_the_next_one_begins(turns: Turns) -> None:
    told: list[str] = []
    for name in "ab":
        turns.join(Run(name, told))
    turns.take()
    assert told == [f"{stage} {name}" for stage in ("hear", "think", "act", "rest") for name in "ab"]
    turns.take()
    assert len(told) == 8, "nobody goes on twice"


def test_what_a_run_has_not_to_do_it_is_not_asked_for(turns: Turns) -> None:
    """One with nothing to hear may have something to do; one whose body has not run to its end has not."""
    told: list[str] = []
    turns.join(Run("deaf", told, hear=lambda: False))
    turns.join(Run("busy", told, think=lambda: False))
    turns.take()
    assert [line for line in told if line.endswith("busy")] == ["hear busy", "think busy"]
    assert [line for line in told if line.endswith("deaf")] == ["hear deaf", "think deaf", "act deaf", "rest deaf"]


@pytest.mark.parametrize("stage", ["hear", "think", "act", "rest"])
def test_what_goes_wrong_in_one_is_no_matter_of_the_others(
    turns: Turns, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    bad = Run("bad", told, **{stage: raising(ZeroDivisionError("a bug"))})
    for run in (Run("a", told), bad, Run("b", told)):
        turns.join(run)
    turns.take()
    assert [line for line in told if line.endswith((" a", " b"))] == [
        f"{each} {name}" for each in ("hear", "think", "act", "rest") for name in "ab"
    ]
    assert "run bad: internal error" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_who_joins_meanwhile_goes_on_the_next_time(turns: Turns) -> None:
    told: list[str] = []
    late = Run("late", told)
    turns.join(Run("a", told, act=lambda: turns.join(late)))
    turns.take()
    assert "hear late" not in told
    turns.take()
    assert told[-1] == "rest late"


async def test_a_turn_of_their_own_is_one_for_all_who_want_it_soon() -> None:
    told: list[str] = []
    turns = Turns(asyncio.get_running_loop())
    turns.join_soon(Run("a", told))
    turns.join_soon(Run("b", told))
    assert told == []
    await asyncio.sleep(0)
    assert told[:4] == ["hear a", "hear b", "think a", "think b"]


def test_what_is_recorded_meanwhile_is_appended_when_all_have_started(turns: Turns) -> None:
    told: list[str] = []
    sink = Sink()
    a, b = tape(turns, sink, "a"), tape(turns, sink, "b")

    def records(where: Tape, *names: str) -> Any:
        def do() -> bool:
            for name in names:
                where.record(draft(name))
            assert sink.appended == []
            return True

        return do

    turns.join(Run("a", told, act=records(a, "first", "second")))
    turns.join(Run("b", told, act=records(b, "third"), rest=lambda: b.record(draft("at once"))))
    turns.take()
    assert [event.name for event in a.undelivered] == ["first", "second"]
    assert [event.name for event in b.undelivered] == ["third", "at once"]
    assert sink.appended == ["a first", "b third"], "one append of a run is in flight, the rest follows"


@pytest.mark.parametrize("early", [True, False])
def test_the_order_of_one_log_is_that_of_its_recording(turns: Turns, early: bool) -> None:
    """A result that is recorded early, and the event that ends the run's stay, come after what is recorded before."""
    log = tape(turns, Sink(), "a")
    seen: list[str | None] = []

    def do() -> bool:
        log.record(draft("first"))
        if early:
            assert log.record_early(draft("early"))
            log.record(draft("last"))
        else:
            log.record_last(Draft(EventType.RUN_COMPLETED, 10), CHANGE)
            log.record(draft("too late"))
        return True

    turns.join(Run("a", [], act=do))
    turns.take()
    seen = [event.name for event in log.undelivered]
    assert seen == (["first", "early", "last"] if early else ["first"])


@pytest.mark.parametrize("stage", ["hear", "think", "act", "rest"])
def test_when_one_ends_the_process_the_others_go_on_alone(turns: Turns, stage: str) -> None:
    told: list[str] = []
    turns.join(Run("a", told))
    turns.join(Run("bad", told, **{stage: raising(SystemExit(7))}))
    turns.join(Run("b", told))
    with pytest.raises(SystemExit):
        turns.take()
    assert told[-3:] == ["pump a", "pump bad", "pump b"]


def test_a_step_that_ends_the_process_leaves_nothing_waiting(turns: Turns) -> None:
    sink = Sink()
    log = tape(turns, sink, "a")

    def do() -> bool:
        log.record(draft("first"))
        raise KeyboardInterrupt

    turns.join(Run("a", [], act=do))
    with pytest.raises(KeyboardInterrupt):
        turns.take()
    assert sink.appended == ["a first"]
    log.record(draft("second"))
    assert [event.name for event in log.undelivered] == ["first", "second"]


def test_what_cannot_be_sealed_is_told_and_harms_no_other(turns: Turns, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    a, b = tape(turns, sink, "a"), tape(turns, sink, "b")

    def do() -> bool:
        bad: Any = object()
        a.record(draft(bad))
        b.record(draft("good"))
        return True

    turns.join(Run("a", [], act=do))
    with caplog.at_level(logging.ERROR):
        turns.take()
    assert sink.appended == ["b good"]
    assert "run a: internal error" in caplog.text
