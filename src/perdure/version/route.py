"""Which version a new run is bound to: routes with weights, sticky by key, and the order in which choices are asked.

The arm of a key is a point on a line: SHA-256 of salt and key, in [0, 1). The arms lie on the line one after another,
each as long as its weight. As long as the salt and the order stay, a first arm that grows keeps every key it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import Final, Literal, NamedTuple

from perdure.errors import InvalidValue
from perdure.version.known import Known, KnownLabel
from perdure.version.resolution import no_version, resolve

_POINTS: Final = 2**64

BoundBy = Literal["version", "schedule", "route", "newest"]


DEFAULT_CHANNEL: Final = "default"
"""The route of starts that name none."""


class Arm(NamedTuple):
    """A version and its share of new runs, relative to the other arms."""

    version_id: int
    label: str
    weight: float


class Route(NamedTuple):
    """One revision of how new runs of a channel are divided; the first arm lies first on the line."""

    channel: str
    revision: int
    arms: tuple[Arm, ...]
    salt: str


class Binding(NamedTuple):
    """What a new run stores, and why.

    Attributes:
        version_id: the content it is bound to.
        label: the label it was bound through.
        bound_by: what decided.
        revision: the route's revision, if a route decided.
        arm: the arm's number from 0, if a route decided.
    """

    version_id: int
    label: str
    bound_by: BoundBy
    revision: int | None = None
    arm: int | None = None


def point(salt: str, key: str) -> int:
    """Return where a key lies: a number below 2**64, evenly spread and the same for ever."""
    length = len(salt.encode())
    return int.from_bytes(hashlib.sha256(f"{length}:{salt}{key}".encode()).digest()[:8])


def arm_of(route: Route, key: str) -> int:
    """Return the number of the arm that a key falls on."""
    weights = [Fraction(arm.weight) for arm in route.arms]
    place = Fraction(point(route.salt, key), _POINTS) * sum(weights)
    end = Fraction(0)
    for number, weight in enumerate(weights):
        end += weight
        if place < end:
            return number
    raise AssertionError  # the last end is the whole line


def revise(known: Known, weights: Mapping[str, float], *, before: Route | None, channel: str, salt: str) -> Route:
    """Return the next revision of a route.

    Arms that were there keep their order and the route its salt, so that keys stay where they are. New arms are laid
    before them, the greatest label first.

    Args:
        known: versions and labels of the workflow.
        weights: requested version to weight.
        before: the revision it follows.
        channel: name of the channel.
        salt: salt of a first revision.

    Raises:
        InvalidValue: a weight is negative or no number, all are zero, or two arms are the same version.
        UnknownVersion: a version is not known.
        VersionClosed: a version takes no new runs.
    """
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isfinite(weight) or weight < 0:
            raise InvalidValue(f"weight of {name} must be a number of at least 0, not {weight!r}")
    if not any(weights.values()):
        raise InvalidValue("a route needs an arm with a weight above 0")
    labels = {name: resolve(known, name) for name in weights}
    if len({label.version_id for label in labels.values()}) < len(labels):
        raise InvalidValue(f"two arms of a route are the same version: {', '.join(weights)}")
    old = [arm.version_id for arm in before.arms] if before is not None else []

    def order(name: str) -> tuple[int, int]:
        label = labels[name]
        place = old.index(label.version_id) if label.version_id in old else -1
        return place, known.labels.index(label)

    arms = tuple(Arm(labels[name].version_id, labels[name].text, weights[name]) for name in sorted(labels, key=order))
    revision, salt = (1, salt) if before is None else (before.revision + 1, before.salt)
    return Route(channel, revision, arms, salt)


def holding(known: Known, before: Route | None, salt: str) -> Route:
    """Return the default route that keeps new runs on what they start on now: the last revision where it leads on.

    Raises:
        UnknownVersion: they start on nothing yet.
    """
    if before is not None and before.arms:
        return before
    newest = known.newest()
    if newest is None:
        raise no_version(known)
    arm = Arm(newest.version_id, newest.text, 1)
    revision, salt = (1, salt) if before is None else (before.revision + 1, before.salt)
    return Route(DEFAULT_CHANNEL, revision, (arm,), salt)


def bind(
    known: Known, *, key: str, requested: str | None = None, pinned: str | None = None, route: Route | None = None
) -> Binding:
    """Return what a new run is bound to: the version asked for, else the schedule's, else the route's, else the newest.

    Args:
        known: versions and labels of the workflow.
        key: what the run is routed by: its id, or a key that several runs share.
        requested: the version that was asked for.
        pinned: the version of the schedule that starts it.
        route: the route of its channel.

    Raises:
        UnknownVersion: the version is not known, or there is none.
        VersionClosed: the version takes no new runs.
        VersionPurged: the version's code is gone.
        InvalidValue: the version begins like a range and is none.
    """
    choices: Sequence[tuple[str | None, BoundBy]] = ((requested, "version"), (pinned, "schedule"))
    for text, by in choices:
        if text is not None:
            return _bound(resolve(known, text), by)
    if route is not None:
        number = arm_of(route, key)
        label = resolve(known, route.arms[number].label)
        return Binding(label.version_id, label.text, "route", route.revision, number)
    newest = known.newest()
    if newest is None:
        raise no_version(known)
    return _bound(newest, "newest")


def _bound(label: KnownLabel, by: BoundBy) -> Binding:
    return Binding(label.version_id, label.text, by)
