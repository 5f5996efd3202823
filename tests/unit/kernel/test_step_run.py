"""Runs that execute one step of another run: what they are called, whose step it is, and where it is found."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import perdure
from perdure.errors import Diverged
from perdure.kernel.step_run import Caller, StepRun, caller_of, detail_of, id_of, place_of
from perdure.model.event import EMPTY_TAIL, Draft, Event, seal
from perdure.model.status import EventType


@perdure.step(name="media.encode")
async def encode(film: str) -> int:
    return len(film)


class Studio:
    @staticmethod
    @perdure.step
    def cut(film: str) -> str:
        return film


@perdure.workflow
async def flow() -> None:
    """Call nothing: only its module counts."""


def started(caller: Caller, name: str = "media.encode", *, is_bound: bool = True) -> Event:
    detail = detail_of(caller, is_bound=is_bound)
    return seal("r", EMPTY_TAIL, [Draft(EventType.RUN_STARTED, 1, kind="step", name=name, detail=detail)], 0, 1)[0]


def test_its_first_event_says_whose_step_it_is() -> None:
    caller = Caller("order-7", "2.0", ":encode")
    assert caller_of(started(caller)) == caller
    assert caller.key == "order-7:2.0"


def test_a_run_of_a_workflow_has_no_caller() -> None:
    event = seal("r", EMPTY_TAIL, [Draft(EventType.RUN_STARTED, 1, detail=b'{"version": "1"}')], 0, 1)[0]
    assert caller_of(event) is None
    claimed = seal("r", EMPTY_TAIL, [Draft(EventType.RUN_CLAIMED, 1, kind="step")], 0, 1)[0]
    assert caller_of(claimed) is None


def test_it_says_what_bound_it_to_its_version_if_it_is_bound() -> None:
    caller = Caller("order-7", "2", ":encode")
    assert b'"bound_by":"caller"' in (started(caller).detail or b"")
    assert b"bound_by" not in (started(caller, is_bound=False).detail or b"")


@pytest.mark.parametrize(
    "number, run_id", [(1, "order-7:2"), (2, "order-7:2~2"), (31, "order-7:2~31")], ids=["first", "second", "later"]
)
def test_its_id_is_the_key_of_the_step_and_which_attempt_of_its_caller_it_is(number: int, run_id: str) -> None:
    assert id_of("order-7:2", number) == run_id


def test_a_long_id_ends_in_a_digest_of_all_of_it() -> None:
    keys = ["r" * 250 + f":{n}.0.0.0" for n in (1, 2)]
    ids = [id_of(key, 1) for key in keys]
    assert all(len(run_id) == 255 for run_id in ids)
    assert ids[0] != ids[1]
    assert id_of("r" * 250 + ":1.00", 1) == "r" * 250 + ":1.00"


def test_a_step_is_found_by_its_name_in_the_module_of_the_workflow_or_another() -> None:
    assert place_of(encode.definition, flow.definition) == ":encode"
    assert place_of(Studio.cut.definition, flow.definition) == ":Studio.cut"
    module = ModuleType("a_module_of_films")
    exec("async def show() -> None: ...", module.__dict__)  # noqa: S102 - a function of another module
    module.show = shown = perdure.step(module.show)  # type: ignore[attr-defined]
    assert place_of(shown.definition, flow.definition) is None  # nobody could import it
    sys.modules[module.__name__] = module
    try:
        assert place_of(shown.definition, flow.definition) == "a_module_of_films:show"
    finally:
        del sys.modules[module.__name__]


def test_a_step_that_is_hidden_behind_another_name_is_not_found() -> None:
    @perdure.step(name="inner")
    async def inner() -> None: ...

    assert place_of(inner.definition, flow.definition) is None


@pytest.mark.parametrize(
    "place, name, there",
    [(":gone", "media.encode", "nothing"), (":encode", "media.cut", "'media.encode'"), ("gone:encode", "x", "nothing")],
    ids=["no function", "another step", "no module"],
)
def test_a_step_that_is_not_there_any_more_is_a_divergence(place: str, name: str, there: str) -> None:
    body = StepRun(flow.definition, started(Caller("order-7", "2", place), name))
    with pytest.raises(Diverged, match=f"the code has .*{there}"):
        _ = body.signature


def test_a_module_that_only_a_body_imports_is_named() -> None:
    body = StepRun(flow.definition, started(Caller("order-7", "2", "lazy_films:encode")))
    with pytest.raises(Diverged, match="the workflow's module does not import lazy_films where it begins"):
        _ = body.signature


def test_its_body_is_one_call_of_the_step_with_the_steps_own_types() -> None:
    body = StepRun(flow.definition, started(Caller("order-7", "2", ":encode")))
    assert body.signature is encode.definition.signature
    assert body.is_async
    assert body.name == "flow"
