"""Why a run has its version: the last that chose decides, and what was taken back does not count."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.event import EMPTY_TAIL, Draft, Event, sealed
from perdure.version.origin import Origin, origin_of


def log(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    return [
        sealed("r", seq, Draft(kind, 0, detail=msgspec.json.encode(facts)), 0, 1, 1, EMPTY_TAIL.chain)
        for seq, (kind, facts) in enumerate(events, 1)
    ]


ROUTED = ("run_started", {"bound_by": "route", "channel": "beta", "revision": 2, "arm": 1, "routing_key": "ana"})
UPGRADED = ("run_upgraded", {"from": "1.3.0", "to": "1.4.0"})
REVERTED = ("run_upgraded", {"from": "1.4.0", "to": "1.3.0", "reverts": 2})
BY_ROUTE = Origin("route", "beta", 2, 1, "ana")


def test_a_start_says_what_decided() -> None:
    assert origin_of(log(ROUTED, ("run_claimed", {}), ("run_reopened", {}))) == BY_ROUTE
    assert origin_of(log(("run_started", {}), ("run_claimed", {"version": "1.3.0"}))) == Origin("first_claim")


def test_an_upgrade_decides_until_it_is_taken_back() -> None:
    assert origin_of(log(ROUTED, UPGRADED)) == Origin("upgrade")
    assert origin_of(log(ROUTED, UPGRADED, REVERTED)) == BY_ROUTE
    assert origin_of(log(ROUTED, UPGRADED, REVERTED, UPGRADED)) == Origin("upgrade")


def test_a_fork_has_the_version_of_what_it_is_a_fork_of_or_the_one_asked_for() -> None:
    copied = {"copied_from": "o-1"}
    assert origin_of(log(ROUTED, UPGRADED, ("run_forked", {**copied, "bound_by": "fork"}))).bound_by == "fork"
    asked = origin_of(log(ROUTED, ("run_forked", {**copied, "bound_by": "version"})))
    assert asked == Origin("version", copied_from="o-1")
    assert origin_of(log(ROUTED, ("run_forked", copied), UPGRADED)) == Origin("upgrade")
