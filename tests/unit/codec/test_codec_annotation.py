"""What annotations do to plain JSON, and what they leave alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Protocol, TypedDict, TypeVar

import pytest

from perdure.codec.json import JsonCodec
from perdure.codec.tagged.annotation import fits, plan_of
from tests.unit.codec.examples import Level, Line, Order, Plain, Point, Word

codec = JsonCodec()
Day = NewType("Day", dt.date)
T = TypeVar("T")


class Payment(TypedDict):
    at: dt.datetime
    cents: int


class Sized(Protocol):
    size: int


FITTING: list[tuple[Any, Any, bool]] = [
    (1, int, True),
    (True, int, True),
    (1, float, True),
    (1.5, int, False),
    (1j, complex, True),
    (None, None, True),
    (0, None, False),
    ("a", Literal["a", "b"], True),
    (1, Literal[True], False),
    (1, Annotated[int, []], True),
    (dt.date(2024, 1, 2), Day, True),
    ("2024-01-02", Day, False),
    (1, int | str, True),
    (1.5, int | str, False),
    ((1, 2), tuple[int, int], True),
    ((1, 2), tuple[int], False),
    ((1, 2), tuple[int, ...], True),
    ((1, "a"), tuple[int, ...], False),
    ((), tuple[()], True),
    ([1], Sequence[int], True),
    ([1], Sequence[str], False),
    ({1}, set[int], True),
    ({"a": 1}, Mapping[str, int], True),
    ({"a": 1}, dict[int, int], False),
    ({"a": 1}, dict, True),
    ({"at": "x"}, Payment, False),
    ({"cents": 1}, Payment, True),
    ([], Payment, False),
    (object(), Sized, True),
    (object(), T, True),
    (object(), "Forward", True),
    (Point(1), Point, True),
    ({"x": 1}, Point, False),
]


@pytest.mark.parametrize("value, annotation, answer", FITTING)
def test_a_value_fits_its_annotation_or_not(value: Any, annotation: Any, answer: bool) -> None:
    """As a type checker sees it, and never an error."""
    assert fits(value, annotation) is answer


@pytest.mark.parametrize(
    "annotation",
    [Any, int, str, dict, list, dict[str, Any], list[dict[str, int]], int | None, Literal["a"], Sequence[str],
     dict[str, list[float]] | str, T],
)  # fmt: skip
def test_annotations_of_plain_json_cost_nothing(annotation: Any) -> None:
    """There is nothing to turn into anything else."""
    assert plan_of(annotation).idle


@pytest.mark.parametrize("annotation", [Point, dt.date, tuple[int], dict[int, int], list[Point], Word | None, Payment])
def test_other_annotations_are_applied(annotation: Any) -> None:
    """And the plan for equal annotations is one."""
    assert not plan_of(annotation).idle
    assert plan_of(annotation) is plan_of(annotation)


def test_a_typed_dict_is_adapted_member_by_member() -> None:
    """One member that does not fit does not keep the others from being adapted."""
    assert codec.decode(b'{"at":"2024-01-02T00:00:00","cents":"x"}', Payment) == {
        "at": dt.datetime(2024, 1, 2),  # noqa: DTZ001 - given without zone
        "cents": "x",
    }


def test_unions_of_classes_take_the_first_that_will_do() -> None:
    """More than the JSON library takes by itself."""
    order = b'{"sku":"a","at":"2024-01-02T00:00:00Z","price":"1"}'
    assert type(codec.decode(order, Point | Order)) is Order
    assert codec.decode(b'{"x":1}', Order | Point) == Point(1)
    assert codec.decode(b'{"day":"2024-01-02"}', Line | str) == Line(day=dt.date(2024, 1, 2))
    assert codec.decode(b'{"q":1}', Order | Point) == {"q": 1}


def test_what_does_not_fit_is_returned_as_it_is() -> None:
    """A wrong annotation is no reason to lose a result."""
    for annotation in (Point, Plain, Level, dt.date, tuple[int, int], dict[int, Decimal], Line):
        assert codec.decode(b'{"no":"fit"}', annotation) == {"no": "fit"}


def test_many_annotations_made_on_the_fly_are_let_go() -> None:
    """The cache is bounded."""
    for number in range(5000):
        assert codec.decode(b"[1]", Annotated[tuple[int], number]) == (1,)
