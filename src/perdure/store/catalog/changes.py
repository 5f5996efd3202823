"""What a change of status or route comes to. Pure: from what is known, as of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.errors import UnknownVersion, UsageError, VersionClosed, VersionPurged
from perdure.store.catalog.base import NOTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.store.catalog.base import Action, Revise
    from perdure.version.known import Known, KnownLabel, KnownVersion, VersionStatus
    from perdure.version.route import Route

_ACTIONS: Final[dict[str, Action]] = {"active": "restored", "withdrawn": "withdrawn", "closed": "closed"}


def named(known: Known, version_id: int) -> str:
    """Return what to call a version."""
    label = known.label_of(known.versions[version_id])
    return f"{known.workflow}@{label.text if label is not None else known.versions[version_id].sha256[:8]}"


def checked(known: Known, version_id: int) -> KnownVersion:
    """Return a version of a workflow.

    Raises:
        UnknownVersion: it has no such version.
    """
    if version_id not in known.versions:
        raise UnknownVersion(f"{known.workflow} has no version with the number {version_id}.")
    return known.versions[version_id]


def labelled(known: Known, seq: int) -> KnownLabel:
    """Return a label of a workflow.

    Raises:
        UnknownVersion: it has no such label.
    """
    found = next((label for label in known.labels if label.seq == seq), None)
    if found is None:
        raise UnknownVersion(f"{known.workflow} has no label with the number {seq}.")
    return found


def action_of(
    known: Known, routes: Iterable[Route], version_id: int, status: VersionStatus, is_whole: Callable[[], bool]
) -> Action | None:
    """Return what a change of status is called; None where there is nothing to change.

    Args:
        known: of the workflow.
        routes: of the workflow.
        version_id: the version.
        status: what it is to be.
        is_whole: whether all of its files are there; asked of a version that was purged.

    Raises:
        UnknownVersion: the workflow has no such version.
        VersionPurged: its code is gone.
        UsageError: it cannot be done so.
    """
    version = checked(known, version_id)
    if status not in _ACTIONS:
        message = f"no version is made {status} by hand: close it, and it is purged when nothing needs it"
        raise UsageError(message)
    if version.status == "purged" and not (status == "active" and is_whole()):
        raise VersionPurged(
            f"{named(known, version_id)} was purged {version.changed}; its code is gone. "
            "To have it back, start a worker that carries it, then restore it."
        )
    if version.status == status:
        return None
    if status == "closed":
        leading = sorted(route.channel for route in routes if any(arm.version_id == version_id for arm in route.arms))
        if leading:
            message = f"{named(known, version_id)} cannot be closed: the route of channel {leading[0]!r} leads to it"
            raise UsageError(message, hint="change or clear that route first")
    return _ACTIONS[status]


def next_route(known: Known, before: Route | None, channel: str, revise: Revise) -> tuple[Route, bool]:
    """Return the next revision of a route, or the one there is where that would be the same, and whether it is new.

    Raises:
        UnknownVersion: an arm is no version of the workflow.
        VersionClosed: an arm takes no new runs.
        UsageError: it is no revision of this route.
        Exception: what ``revise`` raised.
    """
    route = revise(known, before)
    expected = 1 if before is None else before.revision + 1
    if (route.channel, route.revision) != (channel, expected):
        message = f"revision {route.revision} of channel {route.channel!r}, where {expected} of {channel!r} is next"
        raise UsageError(message)
    for arm in route.arms:
        if checked(known, arm.version_id).status in ("closed", "purged"):
            raise VersionClosed(f"{named(known, arm.version_id)} takes no new runs; no route leads to it.")
    if before is None:
        return route, bool(route.arms)
    return (before, False) if (route.arms, route.salt) == (before.arms, before.salt) else (route, True)


def check_noted(action: Action) -> None:
    """Refuse what is recorded by doing it.

    Raises:
        UsageError: it is.
    """
    if action not in NOTED:
        message = f"{action!r} is recorded when it is done, not noted; expected {', '.join(NOTED)}"
        raise UsageError(message)
