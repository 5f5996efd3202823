"""Taking back the newest version: what is withdrawn, and what new runs start on then. Pure."""

from __future__ import annotations

from typing import NamedTuple

from perdure.errors import UnknownVersion
from perdure.version.known import Known, KnownLabel
from perdure.version.resolution import no_version
from perdure.version.route import DEFAULT_CHANNEL, Arm, Route


class Rollback(NamedTuple):
    """What a rollback comes to.

    Attributes:
        gone: the greatest label that new runs start on: its version is withdrawn.
        to: the greatest label below that could be the default: what new runs start on then.
    """

    gone: KnownLabel
    to: KnownLabel


def rollback(known: Known, route: Route | None) -> Rollback:
    """Return what taking back the newest version means.

    Args:
        known: versions and labels of the workflow.
        route: its default route; None without one.

    Raises:
        UnknownVersion: new runs start on nothing, or there is no version before.
    """
    served = {arm.label for arm in route.arms if arm.weight} if route is not None else set()
    gone = next((label for label in known.labels if label.text in served), None) if served else known.newest()
    if gone is None:
        raise no_version(known)
    place = known.place(gone)
    for label in known.labels:
        if label.version_id != gone.version_id and known.place(label) < place and known.is_eligible(label):
            return Rollback(gone, label)
    raise UnknownVersion(f"{known.workflow} has no version before {gone.text} that new runs could start on.")


def without(known: Known, before: Route | None, *, plan: Rollback) -> Route:
    """Return the next revision of the default route: without the version that is taken back, the others as they were.

    Where that was all, the route is cleared, unless something newer, which was held back, would become the default.
    """
    if before is None:
        return Route(DEFAULT_CHANNEL, 1, (), "")
    arms = tuple(arm for arm in before.arms if arm.version_id != plan.gone.version_id)
    if before.arms and not any(arm.weight for arm in arms):
        left = (label for label in known.labels if label.version_id != plan.gone.version_id)
        newest = next((label for label in left if known.is_eligible(label)), None)
        arms = () if newest == plan.to else (Arm(plan.to.version_id, plan.to.text, 1),)
    return Route(DEFAULT_CHANNEL, before.revision + 1, arms, before.salt)
