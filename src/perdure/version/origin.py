"""Why a run has the version it has, by where it comes from.

=================  ================================================================================
start              what was asked for, its route, or what was newest then: `perdure.version.route`
first claim        what its first worker carried, where no version was known at the start
retry, resume      as before: neither chooses
fork               that of the run it is of, or the one that was asked for
step run           that of the run which called the step
upgrade            the one it was moved to
upgrade reverted   as before the upgrade
=================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure.model.event import Event
from perdure.model.status import EventType

Decided = Literal["version", "schedule", "route", "newest", "first_claim", "fork", "caller", "upgrade"]
_CHOOSE: Final = (EventType.RUN_STARTED, EventType.RUN_FORKED, EventType.RUN_UPGRADED)


class Origin(NamedTuple):
    """Why a run has its version.

    Attributes:
        bound_by: what decided.
        channel: name of the route, if a route decided.
        revision: revision of that route.
        arm: number of the route's arm, from 0.
        routing_key: what it was routed by, if that is not its id.
        copied_from: the run that it is a fork of, where the fork decided.
    """

    bound_by: Decided
    channel: str | None = None
    revision: int | None = None
    arm: int | None = None
    routing_key: str | None = None
    copied_from: str | None = None


def origin_of(events: Iterable[Event]) -> Origin:
    """Return why a run has its version.

    Args:
        events: the log of a run that is bound to one, from its beginning.
    """
    found: list[tuple[int, Origin]] = []
    for event in events:
        if event.type in _CHOOSE:
            facts: dict[str, Any] = msgspec.json.decode(event.detail) if event.detail else {}
            if "reverts" in facts:
                found = [(seq, origin) for seq, origin in found if seq < facts["reverts"]]
            else:
                found.append((event.seq, _chosen(event.type, facts)))
    return found[-1][1]


def _chosen(kind: str, facts: dict[str, Any]) -> Origin:
    if kind == EventType.RUN_UPGRADED:
        return Origin("upgrade")
    if kind == EventType.RUN_FORKED:
        return Origin(facts.get("bound_by", "fork"), copied_from=facts["copied_from"])
    return Origin(
        facts.get("bound_by", "first_claim"), facts.get("channel"), facts.get("revision"), facts.get("arm"),
        facts.get("routing_key"),
    )  # fmt: skip
