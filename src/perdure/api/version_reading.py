"""What is read of versions, from one database. Blocks, so it belongs on a thread."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.api.version_info import (
    LabelInfo,
    RouteInfo,
    VersionChange,
    VersionCheck,
    VersionDetail,
    VersionDiff,
    VersionInfo,
)
from perdure.api.version_rows import change_info, label_infos, route_info, version_detail, version_info, version_infos
from perdure.errors import UnknownVersion, VersionPurged
from perdure.store.catalog.changes import named
from perdure.version.evidence import contents, faults
from perdure.version.label import SHORT
from perdure.version.resolution import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.store.base import Store
    from perdure.store.catalog.base import Shelf, StoredDefinition, StoredRelease
    from perdure.version.definition import Definition
    from perdure.version.known import KnownLabel, KnownVersion


class Found(NamedTuple):
    """A version that was asked for.

    Attributes:
        shelf: what is known of its workflow.
        label: the label that was meant.
        version: the version it names.
    """

    shelf: Shelf
    label: KnownLabel
    version: KnownVersion

    @property
    def name(self) -> str:
        """What to call it, such as ``order@1.3.0``."""
        return f"{self.shelf.known.workflow}@{self.label.text}"


def found(store: Store, workflow: str, version: str) -> Found:
    """Return a version by a label, the beginning of its hash, or a range. Raises `UnknownVersion`."""
    shelf = store.catalog.shelf(workflow)
    label = find(shelf.known, version)
    return Found(shelf, label, shelf.known.version_of(label))


def listed(store: Store, workflow: str | None) -> tuple[VersionInfo, ...]:
    """Return the versions of a workflow, or of all."""
    names = store.catalog.workflows() if workflow is None else [workflow]
    return tuple(info for name in names for info in version_infos(store.catalog.shelf(name)))


def labels(store: Store, workflow: str) -> tuple[LabelInfo, ...]:
    """Return the labels of a workflow, greatest first."""
    return tuple(label_infos(store.catalog.shelf(workflow).known))


def detail(store: Store, workflow: str, version: str) -> VersionDetail:
    """Return a version with its content. Raises `UnknownVersion`."""
    one = found(store, workflow, version)
    stored, release = _stored(store, one.version.id)
    return version_detail(version_info(one.shelf, one.version), stored, release, _config(stored.definition))


def changes(store: Store, workflow: str, since: int | None, limit: int) -> tuple[VersionChange, ...]:
    """Return the record of a workflow, newest first."""
    known = store.catalog.shelf(workflow).known
    return tuple(change_info(known, change) for change in store.catalog.log(workflow, since=since, limit=limit))


def diff(store: Store, workflow: str, before: str, after: str, *, sources: bool) -> VersionDiff:
    """Return what differs between two versions.

    Raises:
        UnknownVersion: there is no such version.
        VersionPurged: the sources are asked for, and are no longer stored.
    """
    one, two = found(store, workflow, before), found(store, workflow, after)
    old, new = (_stored(store, each.version.id)[0].definition for each in (one, two))
    changed = sorted(path for path in old.parts.keys() & new.parts.keys() if old.parts[path] != new.parts[path])
    entries = tuple(" ".join(filter(None, (each.entry, each.bootstrap))) for each in (old, new))
    return VersionDiff(
        workflow=workflow, before=one.label.text, after=two.label.text, changed=tuple(changed),
        added=tuple(sorted(new.parts.keys() - old.parts.keys())),
        removed=tuple(sorted(old.parts.keys() - new.parts.keys())),
        entry=(entries[0], entries[1]) if entries[0] != entries[1] else None,
        config=(_config(old), _config(new)) if old.config != new.config else None,
        dependencies=_unlike(old.dependencies.distributions, new.dependencies.distributions),
        text=_text(_files(store, one, set(old.parts)), _files(store, two, set(new.parts))) if sources else None,
    )  # fmt: skip


def source(store: Store, workflow: str, version: str, file: str | None) -> dict[str, bytes]:
    """Return stored files of a version, checked.

    Raises:
        UnknownVersion: there is no such version, or it has no such file.
        VersionPurged: its code is no longer stored.
        SnapshotCorrupt: what is stored is not what was registered.
    """
    one = found(store, workflow, version)
    return _files(store, one, None if file is None else {file})


def verified(store: Store, workflow: str, version: str) -> VersionCheck:
    """Return whether what is stored of a version is what was registered.

    Raises:
        UnknownVersion: there is no such version.
        VersionPurged: its code is no longer stored.
    """
    one = found(store, workflow, version)
    stored, release = _kept(store, one)
    manifest = release.release.manifest
    blobs = store.catalog.blobs({file.sha256 for file in manifest.values()})
    problems = tuple(faults(stored.definition, release.release.tree_sha256, manifest, blobs, one.name))
    return VersionCheck(
        workflow=workflow, label=one.label.text, sha256=one.version.sha256, files=len(manifest), problems=problems
    )


def routes(store: Store, workflow: str) -> tuple[RouteInfo, ...]:
    """Return the routes of a workflow by channel."""
    shelf = store.catalog.shelf(workflow)
    return tuple(route_info(workflow, route) for _, route in sorted(shelf.routes.items()))


def _stored(store: Store, version_id: int) -> tuple[StoredDefinition, StoredRelease | None]:
    stored = store.catalog.definition(version_id)
    assert stored is not None  # noqa: S101 - versions are never deleted
    return stored, store.catalog.release(stored.release_id)


def _kept(store: Store, one: Found) -> tuple[StoredDefinition, StoredRelease]:
    stored, release = _stored(store, one.version.id)
    if one.version.status == "purged" or release is None:
        message = f"{named(one.shelf.known, one.version.id)} was purged {one.version.changed}; its code is gone."
        raise VersionPurged(message)
    return stored, release


def _files(store: Store, one: Found, paths: set[str] | None) -> dict[str, bytes]:
    manifest = _kept(store, one)[1].release.manifest
    wanted = {path: file for path, file in manifest.items() if paths is None or path in paths}
    if paths is not None and (lacking := sorted(paths - wanted.keys())):
        raise UnknownVersion(f"{one.name} has no file {lacking[0]}.")
    blobs = store.catalog.blobs({file.sha256 for file in wanted.values()})
    return contents(wanted, blobs, one.name)


def _config(definition: Definition) -> Any:
    return json.loads(definition.config) if definition.config else None


def _unlike(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return {name: (old.get(name), new.get(name)) for name in names}


def _text(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> str:
    parts = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        try:
            old_lines, new_lines = ((data or b"").decode().splitlines(keepends=True) for data in (before, after))
        except UnicodeDecodeError:
            parts.append(f"Binary files a/{path} and b/{path} differ\n")
            continue
        from_name = "/dev/null" if before is None else f"a/{path}"
        to_name = "/dev/null" if after is None else f"b/{path}"
        lines = difflib.unified_diff(old_lines, new_lines, from_name, to_name)
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts)


def short(sha256: str | None) -> str:
    """Return as much of a hash as is shown."""
    return (sha256 or "")[:SHORT]
