"""What taking back the newest version comes to."""

from __future__ import annotations

import pytest

from perdure.errors import UnknownVersion
from perdure.version.known import Known, KnownLabel, KnownVersion
from perdure.version.rollback import rollback, without
from perdure.version.route import Arm, Route

V1, V2, V3 = (KnownVersion(n, f"{n}" * 64) for n in (1, 2, 3))


def known(*labels: tuple[str, int], withdrawn: tuple[int, ...] = ()) -> Known:
    versions = [one._replace(status="withdrawn") if one.id in withdrawn else one for one in (V1, V2, V3)]
    return Known("order", versions, [KnownLabel(n, text, text, of) for n, (text, of) in enumerate(labels, 1)])


def route(**weights: float) -> Route:
    arms = tuple(Arm(int(name[1:]), f"1.{name[1:]}.0", weight) for name, weight in weights.items())
    return Route("default", 4, arms, "salt")


THREE = (("1.1.0", 1), ("1.2.0", 2), ("1.3.0", 3))


def test_without_a_route_the_newest_goes_and_the_one_before_follows() -> None:
    plan = rollback(known(*THREE), None)
    assert (plan.gone.text, plan.to.text) == ("1.3.0", "1.2.0")
    assert without(known(*THREE), None, plan=plan).arms == ()


def test_what_is_withdrawn_already_or_a_pre_release_is_passed_over() -> None:
    plan = rollback(known(*THREE, withdrawn=(2,)), None)
    assert (plan.gone.text, plan.to.text) == ("1.3.0", "1.1.0")
    plan = rollback(known(("1.1.0", 1), ("1.2.0-rc.1", 2), ("1.3.0", 3)), None)
    assert plan.to.text == "1.1.0"


def test_another_label_of_the_same_content_is_no_version_before() -> None:
    plan = rollback(known(("1.1.0", 1), ("1.2.0", 3), ("1.3.0", 3)), None)
    assert (plan.gone.text, plan.to.text) == ("1.3.0", "1.1.0")


def test_a_canary_goes_and_the_others_keep_their_weights() -> None:
    plan = rollback(known(*THREE), route(v3=5, v2=95))
    assert (plan.gone.text, plan.to.text) == ("1.3.0", "1.2.0")
    after = without(known(*THREE), route(v3=5, v2=95), plan=plan)
    assert (after.revision, after.salt, after.arms) == (5, "salt", (Arm(2, "1.2.0", 95),))


def test_a_route_to_nothing_else_is_cleared_where_the_default_is_the_one_before() -> None:
    plan = rollback(known(*THREE), route(v3=1))
    assert without(known(*THREE), route(v3=1), plan=plan).arms == ()


def test_what_is_held_back_does_not_become_the_default() -> None:
    plan = rollback(known(*THREE), route(v2=1))
    assert (plan.gone.text, plan.to.text) == ("1.2.0", "1.1.0")
    assert without(known(*THREE), route(v2=1), plan=plan).arms == (Arm(1, "1.1.0", 1),)


def test_an_arm_without_a_weight_serves_nothing() -> None:
    plan = rollback(known(*THREE), route(v3=0, v2=1))
    assert plan.gone.text == "1.2.0"


def test_done_twice_because_its_answer_was_lost_the_route_stays() -> None:
    plan = rollback(known(*THREE), route(v3=5, v2=95))
    after = without(known(*THREE), route(v3=5, v2=95), plan=plan)
    again = without(known(*THREE), after, plan=plan)
    assert (again.arms, again.salt) == (after.arms, after.salt)


def test_the_first_version_cannot_be_taken_back() -> None:
    with pytest.raises(UnknownVersion, match=r"order has no version before 1\.1\.0 that new runs could start on"):
        rollback(known(("1.1.0", 1)), None)
    with pytest.raises(UnknownVersion, match="None is published"):
        rollback(Known("order", [], []), None)
