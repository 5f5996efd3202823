"""Which versions may be purged, and which contents nobody needs then. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from perdure.store.catalog.rows import manifest_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from perdure.version.known import VersionStatus


class Held(NamedTuple):
    """A version, as far as its life is concerned."""

    workflow: str
    id: int
    sha256: str
    status: VersionStatus
    status_at: int | None
    """When the status was changed."""
    release_id: int


def purgeable(versions: Iterable[Held], used: Collection[int], *, keep: int, closed_before: int) -> list[Held]:
    """Return the versions that nothing needs.

    A version of whose release any version has a run stays: a run may start a child of its own release.

    Args:
        versions: all there are.
        used: versions that runs are bound to.
        keep: so many of the newest versions of each workflow stay.
        closed_before: it has to be closed since then.
    """
    of: defaultdict[str, list[Held]] = defaultdict(list)
    for version in versions:
        of[version.workflow].append(version)
    busy = {version.release_id for held in of.values() for version in held if version.id in used}
    found: list[Held] = []
    for held in of.values():
        older = sorted(held, key=lambda version: version.id, reverse=True)[max(keep, 0) :]
        found += [
            version
            for version in older
            if version.status == "closed"
            and version.status_at is not None
            and version.status_at < closed_before
            and version.release_id not in busy
        ]
    return sorted(found, key=lambda version: version.id)


def unneeded(contents: Iterable[tuple[str, int, int]], manifests: Iterable[str], before: int) -> list[tuple[str, int]]:
    """Return SHA-256 and size of the contents that no manifest names.

    Args:
        contents: SHA-256, stored size and time of each.
        manifests: of the releases that are needed.
        before: it has to be older than this.
    """
    needed = {file.sha256 for text in manifests for file in manifest_of(text).values()}
    return [(sha256, size) for sha256, size, at in contents if sha256 not in needed and at < before]
