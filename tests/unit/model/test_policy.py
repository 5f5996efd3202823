"""What a step promises is checked where it is written, and waits between attempts grow as announced."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import InvalidValue
from perdure.model.policy import Retry, StepPolicy


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, "3", None])
def test_attempts_are_a_whole_number_of_at_least_one(attempts: Any) -> None:
    with pytest.raises(InvalidValue, match=r"attempts=.*at least 1"):
        Retry(attempts=attempts)


@pytest.mark.parametrize("factor", [0.5, 0, 1001, float("nan"), "2", None])
def test_a_factor_is_between_1_and_1000(factor: Any) -> None:
    with pytest.raises(InvalidValue, match=r"factor=.*between 1 and 1000"):
        Retry(factor=factor)


@pytest.mark.parametrize("setting", ["initial", "maximum"])
def test_a_wait_that_is_no_span_is_named(setting: str) -> None:
    values: dict[str, Any] = {setting: "soon"}
    with pytest.raises(InvalidValue, match=setting):
        Retry(**values)


@pytest.mark.parametrize("given", [ValueError, (ValueError,), [ValueError], {ValueError}, frozenset({ValueError})])
def test_exceptions_to_give_up_on_may_come_in_any_collection_or_alone(given: Any) -> None:
    assert Retry(give_up_on=given).give_up_on == (ValueError,)


@pytest.mark.parametrize("given", ["ValueError", ValueError("an instance"), (int,), [ValueError, None]])
def test_only_exception_classes_can_be_given_up_on(given: Any) -> None:
    with pytest.raises(InvalidValue, match="takes exception classes"):
        Retry(give_up_on=given)


def test_waits_grow_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(initial="100ms", factor=3, maximum="1s", jitter=False)
    assert [retry.wait_us(failed, 0.9) for failed in (1, 2, 3, 4, 5000)] == [100000, 300000, 900000, 1000000, 1000000]


def test_jitter_shortens_a_wait_by_at_most_half() -> None:
    retry = Retry(initial="1s", factor=1, jitter=True)
    assert retry.wait_us(1, 0.0) == 1_000_000
    assert retry.wait_us(1, 0.5) == 750_000
    assert 500_000 <= retry.wait_us(1, 0.999999) < 500_010


@pytest.mark.parametrize(
    "words, complaint",
    [
        ({"mode": "sometimes"}, "mode must be one of normal, at_most_once"),
        ({"durability": "maybe"}, "durability must be one of strict, ahead, none"),
        ({"mode": "transaction", "durability": "ahead"}, "needs durability='strict'"),
        ({"mode": "at_most_once", "durability": "ahead"}, "needs durability='strict'"),
        ({"mode": "at_most_once", "durability": "none"}, "needs durability='strict'"),
        ({"timeout_us": 0}, "longer than 0"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused(words: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        StepPolicy(**words)


def test_a_promise_that_can_be_kept_is_accepted() -> None:
    policy = StepPolicy(mode="at_most_once", timeout_us=1)
    assert (policy.durability, policy.store_input, policy.retry.attempts) == ("strict", True, 1)
