"""New runs are divided as the weights say, every key stays where it is, and an arm that grows keeps what it has."""

from __future__ import annotations

from math import sqrt

import pytest

from perdure.errors import InvalidValue, UnknownVersion, VersionClosed
from perdure.version.route import Route, arm_of, bind, point, revise
from tests.version.histories import BAD, NEW, OLD, History, published

KEYS = [f"customer-{number}" for number in range(20_000)]
FEW = KEYS[:3000]
HISTORY = published((OLD, "1.3.0"), (NEW, "2.0.0"), (BAD, "1.4.0"))


def canary(percent: float, before: Route | None = None, salt: str = "s1") -> Route:
    weights = {"1.3.0": 100 - percent, "2.0.0": percent}
    return revise(HISTORY.known, weights, before=before, channel="default", salt=salt)


def members(route: Route, keys: list[str] = KEYS, label: str = "2.0.0") -> set[str]:
    return {key for key in keys if route.arms[arm_of(route, key)].label == label}


@pytest.mark.parametrize("percent", [0.1, 1, 5, 10, 25, 50, 90])
def test_the_share_of_an_arm_is_within_binomial_bounds(percent: float) -> None:
    share = percent / 100
    expected = len(KEYS) * share
    spread = sqrt(len(KEYS) * share * (1 - share))
    assert abs(len(members(canary(percent))) - expected) < 4 * spread


def test_an_arm_of_weight_zero_gets_nothing_and_all_gets_all() -> None:
    assert not members(canary(0))
    assert len(members(canary(100))) == len(KEYS)


def test_a_canary_that_grows_keeps_its_members() -> None:
    route = canary(1)
    earlier = members(route, FEW)
    for percent in (2, 5, 10, 33.3, 50, 75, 99, 100):
        route = canary(percent, route)
        assert earlier <= members(route, FEW)
        earlier = members(route, FEW)
    assert (route.revision, route.salt) == (9, "s1")


def test_a_canary_that_shrinks_takes_no_new_members() -> None:
    route = canary(50)
    assert members(canary(20, route), FEW) <= members(route, FEW)


def test_two_salts_divide_independently() -> None:
    one, two = members(canary(50)), members(canary(50, salt="s2"))
    share = len(one & two) / len(KEYS)
    assert abs(share - 0.25) < 4 * sqrt(0.25 * 0.75 / len(KEYS))


def test_a_key_stays_where_it_is_for_ever() -> None:
    """Stored routes depend on these numbers: they may not change with a release."""
    assert point("s1", "customer-7") == 2376230558506074257
    assert point("s1", "") != point("", "s1") != point("s", "1")
    assert canary(5) == canary(5)


def test_points_are_evenly_spread() -> None:
    tenths = [0] * 10
    for key in KEYS:
        tenths[point("s1", key) * 10 // 2**64] += 1
    chi_squared = sum((count - len(KEYS) / 10) ** 2 / (len(KEYS) / 10) for count in tenths)
    assert chi_squared < 27.9  # nine degrees of freedom, one in a thousand


def test_the_greatest_label_is_laid_first_and_new_arms_before_old_ones() -> None:
    route = canary(5)
    assert [arm.label for arm in route.arms] == ["2.0.0", "1.3.0"]
    wider = revise(
        HISTORY.known, {"1.3.0": 80, "2.0.0": 10, "1.4.0": 10}, before=route, channel="default", salt="other"
    )
    assert [arm.label for arm in wider.arms] == ["1.4.0", "2.0.0", "1.3.0"]


@pytest.mark.parametrize(
    "weights", [{"1.3.0": -1}, {"1.3.0": float("nan")}, {"1.3.0": float("inf")}, {"1.3.0": 0}, {}, {"1.3.0": True}]
)
def test_weights_must_make_sense(weights: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        revise(HISTORY.known, weights, before=None, channel="default", salt="s")


def test_an_arm_must_be_a_version_and_only_once() -> None:
    with pytest.raises(UnknownVersion):
        revise(HISTORY.known, {"9.0.0": 1}, before=None, channel="default", salt="s")
    with pytest.raises(InvalidValue, match="the same version"):
        revise(HISTORY.known, {"1.3.0": 1, OLD[:8]: 1}, before=None, channel="default", salt="s")


# ------------------------------------------------------------------------------------------- what a new run is bound to


def test_what_was_asked_for_comes_first() -> None:
    route = canary(100)
    known = HISTORY.known
    assert bind(known, key="k", requested="1.3.0", pinned="1.4.0", route=route)[:3] == (1, "1.3.0", "version")
    assert bind(known, key="k", pinned="1.4.0", route=route)[:3] == (3, "1.4.0", "schedule")
    assert bind(known, key="k", route=route) == (2, "2.0.0", "route", 1, 0)
    assert bind(known, key="k") == (2, "2.0.0", "newest", None, None)


def test_a_run_stores_the_arm_and_the_revision_that_explain_its_version() -> None:
    route = canary(50, canary(5))
    for key in KEYS[:100]:
        binding = bind(HISTORY.known, key=key, route=route)
        assert binding.revision == 2
        assert binding.arm is not None
        assert route.arms[binding.arm].version_id == binding.version_id


def test_nothing_is_bound_to_a_version_that_takes_no_runs() -> None:
    history = published((OLD, "1.3.0"), (NEW, "2.0.0"))
    route = revise(history.known, {"2.0.0": 1}, before=None, channel="default", salt="s")
    history.mark(NEW, "closed")
    with pytest.raises(VersionClosed):
        bind(history.known, key="k", route=route)
    assert bind(history.known, key="k").label == "1.3.0"


def test_without_a_version_nothing_starts_by_itself() -> None:
    with pytest.raises(UnknownVersion) as raised:
        bind(History().known, key="k")
    assert str(raised.value) == "order has no version that new runs start on by themselves. None is published."
    with pytest.raises(UnknownVersion, match=r"Ask for one by name: 2\.0\.0-rc\.1\."):
        bind(published((NEW, "2.0.0-rc.1")).known, key="k")
