"""What a worker has to know in order to start version hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.runtime.hosts.job import Entry, Job

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.store.catalog.base import HostedRelease, StoredDefinition
    from perdure.version.dependency import Dependencies


class Plan(NamedTuple):
    """How an engine's worker deals with versions that are not its own.

    Attributes:
        url: of the database.
        settings: settings of the engine by name, for the engines of hosts.
        cache: folder in which releases are unpacked.
        roots: first-party names of the worker's own release; releases that share none are another application's.
        deployed: folders of its first-party code.
        max_hosts: how many hosts it may have.
        host_idle_s: how long a host stays with nothing to do.
        foreign_delay_s: how long a run waits for another worker that carries its version.
        environments: folder in which environments are built for hosts; None: all hosts share the worker's.
    """

    url: str
    settings: dict[str, Any]
    cache: Path
    roots: frozenset[str] = frozenset()
    deployed: tuple[str, ...] = ()
    max_hosts: int = 4
    host_idle_s: float = 30.0
    foreign_delay_s: float = 2.0
    environments: Path | None = None

    def is_own(self, definition: StoredDefinition, roots: tuple[str, ...], workflows: frozenset[str]) -> bool:
        """Whether a version is one of this application's: the same packages, or a workflow of a name it has."""
        return definition.definition.workflow in workflows or not self.roots.isdisjoint(roots)

    def job(self, hosted: HostedRelease, name: str, version_id: int, worker_id: str) -> Job:
        """Return what a host of a release is told.

        Args:
            hosted: the release.
            name: what messages call it.
            version_id: a version that it has to carry, where two of the release are of one workflow.
            worker_id: the worker that starts it.
        """
        release = hosted.stored.release
        chosen: dict[str, StoredDefinition] = {}
        for one in hosted.definitions:
            workflow = one.definition.workflow
            if workflow not in chosen or chosen[workflow].id != version_id:
                chosen[workflow] = one
        dependencies = _dependencies(hosted, version_id)
        bootstrap = next((one.definition.bootstrap for one in hosted.definitions if one.definition.bootstrap), "")
        return Job(
            release=name, tree=release.tree_sha256, manifest=dict(release.manifest),
            roots=list(release.roots), entries=[_entry(one) for one in chosen.values()], cache=str(self.cache),
            url=self.url, settings=self.settings, parent=worker_id, elsewhere=dict(hosted.elsewhere),
            deployed=list(self.deployed), bootstrap=bootstrap, python=dependencies.python,
            distributions=dict(dependencies.distributions), host_idle_s=self.host_idle_s,
            lock=None if self.environments is None else dependencies.lock,
            environment={
                name: value
                for one in chosen.values()
                for name, value in hosted.environments.get(one.id, {}).items()
            },
        )  # fmt: skip


def _dependencies(hosted: HostedRelease, version_id: int) -> Dependencies:
    """Return what a host of a release stands on: of two versions that differ in pinned dependencies, its own."""
    common = hosted.stored.release.dependencies
    own = next((one.definition for one in hosted.definitions if one.id == version_id), None)
    if own is None or own.deps != "pin":
        return common
    return own.dependencies._replace(distributions={**common.distributions, **own.dependencies.distributions})


def _entry(stored: StoredDefinition) -> Entry:
    definition = stored.definition
    label = stored.labels[-1].text if stored.labels else definition.sha256[:8]
    return Entry(
        definition.workflow, definition.entry, stored.id, label, definition.deps == "pin", definition.config
    )  # fmt: skip
