"""The rows of the catalog's tables, and how what they hold becomes text and back. JSON is canonical and ASCII."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.errors import StoreCorrupt
from perdure.store.catalog.base import CatalogChange, StoredDefinition, StoredRelease
from perdure.version.config import canonical_json
from perdure.version.definition import Definition
from perdure.version.dependency import Dependencies, Lock
from perdure.version.known import KnownLabel, KnownVersion, StatusChange
from perdure.version.manifest import ManifestFile
from perdure.version.route import Arm, Route
from perdure.version.survey import Release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.store.catalog.base import Action
    from perdure.version.known import VersionStatus
    from perdure.version.manifest import Manifest


class ReleaseRow(NamedTuple):
    """The files of a program at one time."""

    id: int
    tree_sha256: str
    manifest: str
    roots: str
    dependencies: str
    source_commit: str | None
    created_at: int


class VersionRow(NamedTuple):
    """One content of a workflow."""

    id: int
    workflow: str
    sha256: str
    scheme: str
    entry: str
    bootstrap: str
    parts: str
    config: str
    deps: str
    dependencies: str
    release_id: int
    status: VersionStatus
    status_n: int | None
    """The row of the record that tells of the last change of the status."""
    created_at: int


class LabelRow(NamedTuple):
    """One publication."""

    seq: int
    workflow: str
    label: str
    semver: str
    version_id: int
    published_by: str
    published_at: int


class AliasRow(NamedTuple):
    """What a version's content is called in one scheme."""

    scheme: str
    sha256: str
    version_id: int


class ChangeRow(NamedTuple):
    """A row of the record."""

    n: int
    workflow: str
    version_id: int | None
    at: int
    actor: str
    action: Action
    reason: str
    detail: str


class RouteRow(NamedTuple):
    """One revision of a route."""

    workflow: str
    channel: str
    revision: int
    arms: str
    salt: str
    actor: str
    reason: str
    at: int


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"what is stored of a version cannot be read: {error}"
        raise StoreCorrupt(message) from error


def status_change(at: int | None, actor: str | None, reason: str | None) -> StatusChange | None:
    """Return who changed a status, from the row of the record that tells of it."""
    if at is None:
        return None
    return StatusChange(datetime.fromtimestamp(at / 1_000_000, UTC).date().isoformat(), actor or "", reason or "")


def known_version(
    version_id: int, sha256: str, status: VersionStatus, at: int | None, actor: str | None, reason: str | None
) -> KnownVersion:
    """Return a version as it is decided on."""
    return KnownVersion(version_id, sha256, status, status_change(at, actor, reason))


def known_label(row: LabelRow) -> KnownLabel:
    """Return a stored label."""
    return KnownLabel(row.seq, row.label, row.semver, row.version_id, row.published_by, row.published_at)


def release_row(release_id: int, release: Release, commit: str | None, at: int) -> ReleaseRow:
    """Return a release as it is stored."""
    return ReleaseRow(
        release_id,
        release.tree_sha256,
        manifest_text(release.manifest),
        canonical_json(list(release.roots)),
        _dependencies_text(release.dependencies),
        commit,
        at,
    )


def stored_release(row: ReleaseRow) -> StoredRelease:
    """Return what a stored release is."""
    roots = tuple(_loads(row.roots))
    release = Release(row.tree_sha256, manifest_of(row.manifest), roots, _dependencies(row.dependencies))
    return StoredRelease(row.id, release, row.source_commit, row.created_at)


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as it is stored."""
    return canonical_json({path: list(file) for path, file in manifest.items()})


def manifest_of(text: str) -> dict[str, ManifestFile]:
    """Return a stored manifest."""
    return {path: ManifestFile(*file) for path, file in _loads(text).items()}


def version_row(version_id: int, definition: Definition, release: ReleaseRow, at: int) -> VersionRow:
    """Return a new version as it is stored."""
    return VersionRow(
        version_id,
        definition.workflow,
        definition.sha256,
        definition.scheme,
        definition.entry,
        definition.bootstrap,
        canonical_json(dict(definition.parts)),
        definition.config,
        definition.deps,
        _dependencies_text(definition.dependencies, _dependencies(release.dependencies).lock),
        release.id,
        "active",
        None,
        at,
    )


def definition_of(row: VersionRow, release_dependencies: str) -> Definition:
    """Return the content of a stored version."""
    dependencies = _dependencies(row.dependencies, release_dependencies)
    parts = _loads(row.parts)
    return Definition(
        row.workflow, row.scheme, row.sha256, row.entry, row.bootstrap, parts, row.config,
        "pin" if row.deps == "pin" else "record", dependencies,
    )  # fmt: skip


def stored_definition(
    row: VersionRow, release_dependencies: str, labels: tuple[KnownLabel, ...], changed: StatusChange | None
) -> StoredDefinition:
    """Return what a stored version is."""
    definition = definition_of(row, release_dependencies)
    return StoredDefinition(row.id, definition, labels, row.status, changed, row.release_id, row.created_at)


def _dependencies_text(dependencies: Dependencies, kept: Lock | None = None) -> str:
    """Return dependencies as they are stored. The text of a lock file that is ``kept`` elsewhere is left out."""
    lock = dependencies.lock
    text = None if lock is not None and lock == kept else lock and lock.text
    return canonical_json(
        {
            "python": dependencies.python,
            "engine_api": dependencies.engine_api,
            "distributions": dict(dependencies.distributions),
            "compiled": dict(dependencies.compiled),
            "lock": None if lock is None else {"name": lock.name, "sha256": lock.sha256, "text": text},
        }
    )


def _dependencies(text: str, kept: str | None = None) -> Dependencies:
    found = _loads(text)
    lock = found["lock"]
    if lock is not None and lock["text"] is None:  # the release had the same, unless the version was purged since
        there = None if kept is None else _loads(kept)["lock"]
        lock["text"] = there["text"] if there is not None and there["sha256"] == lock["sha256"] else ""
    return Dependencies(
        found["python"],
        found["engine_api"],
        found["distributions"],
        found["compiled"],
        None if lock is None else Lock(lock["name"], lock["text"], lock["sha256"]),
    )


def route_row(workflow: str, route: Route, at: int, actor: str, reason: str) -> RouteRow:
    """Return a revision of a route as it is stored."""
    return RouteRow(workflow, route.channel, route.revision, _arms_text(route), route.salt, actor, reason, at)


def route_of(channel: str, revision: int, arms: str, salt: str) -> Route:
    """Return a stored revision of a route."""
    return Route(channel, revision, tuple(Arm(*arm) for arm in _loads(arms)), salt)


def _arms_text(route: Route) -> str:
    return canonical_json([list(arm) for arm in route.arms])


def route_detail(route: Route) -> dict[str, Any]:
    """Return what the record says of a route."""
    return {"channel": route.channel, "revision": route.revision, "arms": [list(arm) for arm in route.arms]}


def detail_text(detail: Mapping[str, Any]) -> str:
    """Return the detail of a change as it is stored."""
    return canonical_json(dict(detail))


def change_of(row: ChangeRow) -> CatalogChange:
    """Return a stored change."""
    return CatalogChange(*row[:-1], _loads(row.detail))


def elsewhere(stored: StoredRelease, others: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Return first-party names that are not a release's own, to a version that has each.

    Args:
        stored: the release.
        others: of each version of every release: the release, its names as JSON, workflow and label.
    """
    found: dict[str, str] = {}
    for release_id, roots, workflow, label in others:
        if release_id != stored.id:
            for name in json.loads(roots):
                if name not in stored.release.roots:
                    found[name] = f"{workflow}@{label}"
    return found


def environments(rows: Iterable[Sequence[Any]]) -> dict[int, dict[str, str]]:
    """Return what was set for hosts, by version: of each the last. Rows are a version and a detail as JSON."""
    return {version_id: json.loads(detail)["environment"] for version_id, detail in rows}
