"""What is done to versions and routes, in one database. Blocks, so it belongs on a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from perdure.api.acting import default_actor
from perdure.api.version_info import BumpCheck, Published, RouteInfo, VersionInfo, VersionsCollected
from perdure.api.version_reading import found
from perdure.api.version_rows import published, route_info, version_info
from perdure.api.version_signing import sign_published
from perdure.api.versioning import new_salt
from perdure.errors import InvalidValue, UnbumpedChange, UnknownVersion
from perdure.kernel.definition import check_name
from perdure.model.duration import microseconds
from perdure.version.definition import differences
from perdure.version.evidence import contents
from perdure.version.known import unlabelled
from perdure.version.level import bumped, level, steps_of
from perdure.version.publication import decide
from perdure.version.resolution import find, no_version
from perdure.version.rollback import rollback, without
from perdure.version.route import DEFAULT_CHANNEL, Arm, Route, revise

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from perdure.api.versioning import Registrar
    from perdure.model.duration import Duration
    from perdure.store.base import Store
    from perdure.version.definition import Definition
    from perdure.version.ed25519 import SigningKey, TrustedKey
    from perdure.version.known import Known, KnownLabel, VersionStatus
    from perdure.version.level import Level
    from perdure.version.manifest import Blob, Manifest
    from perdure.version.survey import Survey

NEWEST: Final = "newest"
_NEW_US: Final = 3_600_000_000
"""A content that was added in the last hour may belong to a registration that is under way."""


class Why(NamedTuple):
    """Who changes something, and for what reason."""

    actor: str
    reason: str


def why(actor: str | None, reason: str) -> Why:
    """Return who acts and why. Raises `InvalidValue` for a reason that says nothing."""
    if not isinstance(reason, str) or not reason.strip():
        message = "a reason must be given: it is what the record of changes is read for"
        raise InvalidValue(message)
    return Why(actor or default_actor(), reason)


def publish(
    store: Store, registrar: Registrar, key: SigningKey | None, trusted: Collection[TrustedKey], by: Why
) -> tuple[Published, ...]:
    """Register what is here, and sign it, if there is a key."""
    survey = registrar.survey()
    registered = [] if survey is None else registrar.publish(survey)
    if survey is not None and key is not None:
        sign_published(store, survey.release, registered, key, trusted, by)
    key_id = None if key is None else key.key.key_id
    return tuple(replace(published(one), key_id=key_id) for one in registered)


def set_status(store: Store, workflow: str, version: str, status: VersionStatus, by: Why) -> VersionInfo:
    """Change whether a version takes new runs, and return it."""
    one = found(store, workflow, version)
    store.catalog.set_status(workflow, one.version.id, status, at=store.now(), actor=by.actor, reason=by.reason)
    return _info(store, workflow, one.version.id)


def roll_back(store: Store, workflow: str, by: Why) -> tuple[VersionInfo, VersionInfo]:
    """Withdraw the newest version that new runs start on; return it, and what they start on now."""
    shelf = store.catalog.shelf(workflow)
    plan = rollback(shelf.known, shelf.routes.get(DEFAULT_CHANNEL))
    change: Any = {"at": store.now(), "actor": by.actor, "reason": by.reason}
    # The route first: cut off in between, the same command does the rest.
    store.catalog.set_route(workflow, DEFAULT_CHANNEL, partial(without, plan=plan), **change)
    store.catalog.set_status(workflow, plan.gone.version_id, "withdrawn", **change)
    return _info(store, workflow, plan.gone.version_id), _info(store, workflow, plan.to.version_id)


def set_route(store: Store, workflow: str, channel: str, weights: Mapping[str, float], by: Why) -> RouteInfo:
    """Divide the new runs of a channel."""
    check_name(channel, "a channel's name")

    def change(known: Known, before: Route | None) -> Route:
        return revise(known, weights, before=before, channel=channel, salt=new_salt())

    return route_info(workflow, _revised(store, workflow, channel, change, by))


def promote(store: Store, workflow: str, channel: str, by: Why) -> RouteInfo:
    """Let new runs of a channel start on the newest version."""
    check_name(channel, "a channel's name")

    def change(known: Known, before: Route | None) -> Route:
        newest = known.newest()
        if newest is None:
            raise no_version(known)
        # Without a route the default is the newest; a channel that has none would be none.
        arms = () if channel == DEFAULT_CHANNEL else (Arm(newest.version_id, newest.text, 1),)
        return _next(before, channel, arms)

    return route_info(workflow, _revised(store, workflow, channel, change, by))


def clear_route(store: Store, workflow: str, channel: str, by: Why) -> RouteInfo:
    """Take a route away."""
    check_name(channel, "a channel's name")
    return route_info(workflow, _revised(store, workflow, channel, lambda _, before: _next(before, channel, ()), by))


def lead_to(store: Store, workflow: str, label: str, by: Why) -> RouteInfo | None:
    """Let new runs start on one version, whatever is newer; None if they do already."""
    shelf = store.catalog.shelf(workflow)
    wanted = find(shelf.known, label)
    newest = shelf.known.newest()
    route = shelf.routes.get(DEFAULT_CHANNEL)
    is_newest = newest is not None and newest.version_id == wanted.version_id
    if route is None and is_newest:
        return None
    if route is not None and {arm.version_id for arm in route.arms if arm.weight} == {wanted.version_id}:
        return None
    if is_newest:
        return promote(store, workflow, DEFAULT_CHANNEL, by)
    return set_route(store, workflow, DEFAULT_CHANNEL, {wanted.text: 1}, by)


def collect(store: Store, keep: int, closed_for: Duration, by: Why, *, dry_run: bool) -> VersionsCollected:
    """Remove the code of closed versions that nothing needs."""
    now = store.now()
    done = store.catalog.collect(
        keep=keep, closed_before=now - microseconds(closed_for, "closed_for"), unused_before=now - _NEW_US, at=now,
        actor=by.actor, reason=by.reason, dry_run=dry_run,
    )  # fmt: skip
    hashes = tuple(version.sha256 for version in done.versions)
    return VersionsCollected(versions=hashes, blobs=done.blobs, bytes=done.bytes, dry_run=dry_run)


def bump_checks(store: Store, registrar: Registrar, against: str) -> tuple[BumpCheck, ...]:
    """Return what publishing would lead to. Changes nothing."""
    survey = registrar.survey()
    if survey is None:
        return ()
    return tuple(_bump(store, registrar, survey, definition, against) for definition in survey.definitions)


def _bump(store: Store, registrar: Registrar, survey: Survey, definition: Definition, against: str) -> BumpCheck:
    known = store.catalog.shelf(definition.workflow).known
    semver = registrar.semver(definition.workflow)

    def content(version_id: int) -> Definition:
        stored = store.catalog.definition(version_id)
        assert stored is not None  # noqa: S101 - versions are never deleted
        return stored.definition

    problem = None
    try:
        decide(
            known, definition.sha256, semver, on_unbumped="refuse",
            differing=lambda version: differences(content(version.id), definition),
        )  # fmt: skip
    except UnbumpedChange as error:
        problem = str(error)
    label = _against(known, against)
    changed: list[str] = []
    by: Level | None = None
    if label is not None:
        old = content(label.version_id)
        changed = differences(old, definition)
        by = _level(store, old, label, survey, definition, changed)
    grown = None if by is None or label is None else bumped(known.semver(label), by)
    return BumpCheck(
        workflow=definition.workflow, sha256=definition.sha256, semver=semver,
        against=None if label is None else label.text, changed=tuple(changed), level=by, proposed=grown,
        problem=problem if problem is not None else _unnumbered(known, definition, semver),
    )  # fmt: skip


def _against(known: Known, against: str) -> KnownLabel | None:
    if not known.labels:
        return None
    if against != NEWEST:
        return find(known, against)
    return known.newest() or known.labels[0]


def _level(
    store: Store, old: Definition, label: KnownLabel, survey: Survey, new: Definition, changed: Collection[str]
) -> Level | None:  # fmt: skip
    if not changed:
        return None
    stored = store.catalog.definition(label.version_id)
    release = None if stored is None or stored.status == "purged" else store.catalog.release(stored.release_id)
    if release is None:
        return "major"  # nothing is left to compare with
    manifest = release.release.manifest
    before = _sources(old, manifest, store.catalog.blobs({file.sha256 for file in manifest.values()}))
    own = survey.release.manifest
    after = _sources(new, own, list(survey.blobs({file.sha256 for file in own.values()})))
    return level(steps_of(before, old.entry), steps_of(after, new.entry))


def _sources(definition: Definition, manifest: Manifest, blobs: Collection[Blob]) -> dict[str, bytes]:
    wanted = {path: manifest[path] for path in definition.parts if path.endswith(".py") and path in manifest}
    return contents(wanted, blobs, definition.workflow)


def _unnumbered(known: Known, definition: Definition, semver: str | None) -> str | None:
    """Return what is wrong with new content that has no number; None if nothing is."""
    if semver is not None or not known.labels or known.by_hash(definition.sha256) is not None:
        return None
    label = known.free_label(unlabelled(), definition.sha256)
    return f"{known.workflow} has no version=; this change would be published as {label}."


def _next(before: Route | None, channel: str, arms: tuple[Arm, ...]) -> Route:
    revision, salt = (1, new_salt()) if before is None else (before.revision + 1, before.salt)
    return Route(channel, revision, arms, salt)


def _revised(store: Store, workflow: str, channel: str, change: Any, by: Why) -> Route:
    if not store.catalog.shelf(workflow).known.labels:
        raise UnknownVersion(f"{workflow} has no version. None is published.")
    return store.catalog.set_route(workflow, channel, change, at=store.now(), actor=by.actor, reason=by.reason)


def _info(store: Store, workflow: str, version_id: int) -> VersionInfo:
    shelf = store.catalog.shelf(workflow)
    return version_info(shelf, shelf.known.versions[version_id])
