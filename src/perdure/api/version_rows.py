"""From what is stored of versions to what people see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api.reading import moment
from perdure.api.version_info import (
    LabelInfo,
    Published,
    RouteArm,
    RouteInfo,
    VersionChange,
    VersionDetail,
    VersionInfo,
)
from perdure.version.route import DEFAULT_CHANNEL

if TYPE_CHECKING:
    from perdure.store.catalog.base import CatalogChange, Registered, Shelf, StoredDefinition, StoredRelease
    from perdure.version.known import Known, KnownVersion
    from perdure.version.route import Route


def shares(shelf: Shelf) -> dict[int, float]:
    """Return the part of new runs that each version gets of those which name no channel and no version."""
    route = shelf.routes.get(DEFAULT_CHANNEL)
    if route is None:
        newest = shelf.known.newest()
        return {} if newest is None else {newest.version_id: 1.0}
    return {
        arm.version_id: arm.weight / total for total in (sum(one.weight for one in route.arms),) for arm in route.arms
    }


def version_info(shelf: Shelf, version: KnownVersion) -> VersionInfo:
    """Return what a listing shows of a version."""
    known = shelf.known
    labels = [label for label in known.labels if label.version_id == version.id]
    newest = known.newest()
    return VersionInfo(
        workflow=known.workflow, label=labels[0].text, labels=tuple(label.text for label in labels),
        sha256=version.sha256, status=version.status,
        status_change=None if version.changed is None else str(version.changed), published_by=labels[0].published_by,
        published_at=moment(labels[0].published_at),
        is_newest=newest is not None and newest.version_id == version.id, share=shares(shelf).get(version.id, 0.0),
    )  # fmt: skip


def version_infos(shelf: Shelf) -> list[VersionInfo]:
    """Return all versions of a workflow, those with the greatest labels first."""
    ids = dict.fromkeys(label.version_id for label in shelf.known.labels)
    return [version_info(shelf, shelf.known.versions[version_id]) for version_id in ids]


def version_detail(
    info: VersionInfo, stored: StoredDefinition, release: StoredRelease | None, config: Any
) -> VersionDetail:
    """Return a version with its content."""
    definition = stored.definition
    return VersionDetail(
        version=info, entry=definition.entry, bootstrap=definition.bootstrap, files=definition.parts, config=config,
        deps=definition.deps, python=definition.dependencies.python,
        distributions=definition.dependencies.distributions,
        roots=() if release is None else release.release.roots,
        commit=None if release is None else release.source_commit, created_at=moment(stored.created_at),
    )  # fmt: skip


def label_infos(known: Known) -> list[LabelInfo]:
    """Return the labels of a workflow, greatest first."""
    newest = known.newest()
    return [
        LabelInfo(
            label=label.text, semver=label.semver, sha256=known.version_of(label).sha256,
            status=known.version_of(label).status, published_by=label.published_by,
            published_at=moment(label.published_at), is_newest=label == newest,
        )
        for label in known.labels
    ]  # fmt: skip


def change_info(known: Known, change: CatalogChange) -> VersionChange:
    """Return an entry of the record."""
    version = known.versions.get(change.version_id) if change.version_id is not None else None
    label = None if version is None else known.label_of(version)
    return VersionChange(
        n=change.n, at=moment(change.at), actor=change.actor, action=change.action,
        label=None if label is None else label.text, reason=change.reason, detail=change.detail,
    )  # fmt: skip


def published(one: Registered) -> Published:
    """Return what became of a definition."""
    return Published(
        workflow=one.definition.workflow, label=one.label, sha256=one.definition.sha256, action=one.decision.action,
        notices=tuple(notice.text for notice in one.decision.notices),
    )  # fmt: skip


def route_info(workflow: str, route: Route) -> RouteInfo:
    """Return a route."""
    total = sum(arm.weight for arm in route.arms)
    arms = tuple(RouteArm(label=arm.label, weight=arm.weight, share=arm.weight / total) for arm in route.arms)
    return RouteInfo(workflow=workflow, channel=route.channel, revision=route.revision, arms=arms)
