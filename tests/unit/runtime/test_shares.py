"""A worker's queues share it by weight: each has its part of all claims to within two runs."""

from __future__ import annotations

import random

import pytest

from perdure.runtime.shares import Shares


def taken(shares: Shares, limit: int, there: dict[str, int]) -> dict[str, int]:
    """Claim as a store does, of queues with so many runs."""
    order, own = shares.of(limit)
    got = {name: min(share, there[name]) for name, share in zip(order, own, strict=True)}
    for name in order:
        more = min(there[name] - got[name], limit - sum(got.values()))
        got[name] += more
    shares.count(dict(zip(order, own, strict=True)), got)
    for name, n in got.items():
        there[name] -= n
    return got


@pytest.mark.parametrize("seed", range(20))
def test_each_queue_has_its_weight_of_all_claims_to_within_two_runs(seed: int) -> None:
    luck = random.Random(seed)
    weights = [luck.randint(1, 9) for _ in range(luck.randint(2, 5))]
    names = [f"q{n}" for n in range(len(weights))]
    shares = Shares(names, weights)
    total = dict.fromkeys(names, 0)
    there = dict.fromkeys(names, 10**9)
    for _ in range(300):
        for name, n in taken(shares, luck.choice([1, 1, 2, 7, 40]), there).items():
            total[name] += n
        claimed = sum(total.values())
        for name, weight in zip(names, weights, strict=True):
            assert abs(total[name] - claimed * weight / sum(weights)) <= 2


def test_what_a_queue_does_not_use_goes_to_the_others() -> None:
    shares = Shares(["a", "b"], [1, 1])
    assert taken(shares, 10, {"a": 2, "b": 100}) == {"a": 2, "b": 8}


@pytest.mark.parametrize("limit", [1, 10])
def test_a_queue_that_was_empty_has_saved_nothing_up(limit: int) -> None:
    shares = Shares(["a", "b"], [1, 1])
    for _ in range(50):
        taken(shares, limit, {"a": 0, "b": 1000})
    there = {"a": 1000, "b": 1000}
    total = {"a": 0, "b": 0}
    for _ in range(20 // limit):
        for name, n in taken(shares, limit, there).items():
            total[name] += n
    assert abs(total["a"] - total["b"]) <= 2


def test_one_queue_alone_needs_no_shares() -> None:
    assert Shares(["a"]).of(7) == (("a",), ())
