"""Which versions share a host: all of a release, save those that would stand in each other's way.

A process can carry one version of a workflow, so where a release has two of one each has a host of its own. So has a
version that the release's host did not take along: it could not be loaded, or is newer than the host. Whether and when
it is tried again is no matter of the others, whose runs go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from perdure.store.catalog.base import HostedRelease, StoredDefinition


class Sharing:
    """See the module. A host has a name: ``71`` for what shares release 71, ``71/9`` for version 9 of it alone."""

    def __init__(self) -> None:
        self._apart: set[int] = set()

    def host_of(self, version_id: int, hosted: HostedRelease, ready: Mapping[str, AbstractSet[int]]) -> str:
        """Return the name of the host for a version.

        Args:
            version_id: the version, which is one of the release.
            hosted: its release.
            ready: the hosts that are ready, with the versions that each carries.
        """
        shared = str(hosted.stored.id)
        if version_id not in ready.get(shared, (version_id,)):
            self._apart.add(version_id)
        return shared if any(one.id == version_id for one in self._shared(hosted)) else alone(shared, version_id)

    def left_behind(self, name: str, hosted: HostedRelease, carried: AbstractSet[int]) -> None:
        """Keep apart what a host that has just become ready does not carry: it may leave before anybody looks again."""
        self._apart.update(one.id for one in self.members(name, hosted) if one.id not in carried)

    def members(self, name: str, hosted: HostedRelease) -> list[StoredDefinition]:
        """Return what a host of this name carries."""
        version_id = name.partition("/")[2]
        if not version_id:
            return self._shared(hosted)
        return [one for one in hosted.definitions if one.id == int(version_id)]

    def _shared(self, hosted: HostedRelease) -> list[StoredDefinition]:
        names = [one.definition.workflow for one in hosted.definitions]
        return [
            one for one, name in zip(hosted.definitions, names, strict=True)
            if one.id not in self._apart and names.count(name) == 1
        ]  # fmt: skip


def alone(name: str, version_id: int) -> str:
    """Return the name of the host that carries a version alone, of the release of the host of this name."""
    return f"{release_id(name)}/{version_id}"


def release_id(name: str) -> int:
    """Return the release of a host of this name."""
    return int(name.partition("/")[0])
