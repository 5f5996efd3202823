"""What a worker has to know in order to start version hosts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.errors import SignatureInvalid
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import Entry, Job
from perdure.version.signature import Content, fault, not_signed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perdure.store.catalog.base import HostedRelease, StoredDefinition
    from perdure.version.dependency import Dependencies
    from perdure.version.ed25519 import TrustedKey
    from perdure.version.survey import Release


logger: logging.Logger = logging.getLogger("perdure.hosts")


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
        trusted: keys of which one must have signed a version, or it is refused; None where none is asked for.
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
    trusted: tuple[TrustedKey, ...] | None = None

    def is_own(self, definition: StoredDefinition, roots: tuple[str, ...], workflows: frozenset[str]) -> bool:
        """Whether a version is one of this application's: the same packages, or a workflow of a name it has."""
        return definition.definition.workflow in workflows or not self.roots.isdisjoint(roots)

    def job(self, hosted: HostedRelease, name: str, carried: Sequence[StoredDefinition], worker_id: str) -> Job:
        """Return what a host of a release is told.

        Args:
            hosted: the release.
            name: what messages call it.
            carried: the versions of the release that it is to carry, of as many workflows.
            worker_id: the worker that starts it.
        """
        release = hosted.stored.release
        refused = {one.id: cause for one in carried if (cause := self._refusal(one, release)) is not None}
        taken = [one for one in carried if one.id not in refused]
        dependencies = _dependencies(release, taken)
        bootstrap = next((one.definition.bootstrap for one in taken if one.definition.bootstrap), "")
        return Job(
            release=name, tree=release.tree_sha256, manifest=dict(release.manifest), roots=list(release.roots),
            entries=[_entry(one) for one in taken], refused=refused, cache=str(self.cache),
            url=self.url, settings=self.settings, parent=worker_id, elsewhere=dict(hosted.elsewhere),
            deployed=list(self.deployed), bootstrap=bootstrap, python=dependencies.python,
            distributions=dict(dependencies.distributions), host_idle_s=self.host_idle_s,
            lock=None if self.environments is None else dependencies.lock,
            environment=self._environment(hosted, carried),
        )  # fmt: skip

    def _environment(self, hosted: HostedRelease, carried: Iterable[StoredDefinition]) -> dict[str, str]:
        """Return the variables that were set for versions: nobody signed those, and a variable can lead to code."""
        found = {name: value for one in carried for name, value in hosted.environments.get(one.id, {}).items()}
        if found and self.trusted is not None:
            logger.warning("%s: not set, as only what is signed counts here", ", ".join(sorted(found)))
            return {}
        return found

    def _refusal(self, stored: StoredDefinition, release: Release) -> Cause | None:
        """Return why nothing of a version may be unpacked, let alone run."""
        if self.trusted is None:
            return None
        why = fault(Content(stored.definition, release), stored.labels, stored.signatures, self.trusted)
        locks = (stored.definition.dependencies.lock, release.dependencies.lock)
        if (
            why is None
            and self.environments is not None
            and any(lock is not None and lock.is_altered for lock in locks)
        ):
            why = "its lock file is not the one that was signed"  # what it names would be installed, and run
        if why is None:
            return None
        version = _entry(stored).version
        return Cause(SignatureInvalid.code, version, str(not_signed(version, why)))


def _dependencies(release: Release, taken: Sequence[StoredDefinition]) -> Dependencies:
    """Return what a host of a release stands on: where it is of one version that pins its dependencies, on those."""
    common = release.dependencies
    own = taken[0].definition if len(taken) == 1 else None
    if own is None or own.deps != "pin":
        return common
    return own.dependencies._replace(distributions={**common.distributions, **own.dependencies.distributions})


def _entry(stored: StoredDefinition) -> Entry:
    definition = stored.definition
    label = stored.labels[-1].text if stored.labels else definition.sha256[:8]
    return Entry(
        definition.workflow, definition.entry, stored.id, label, definition.deps == "pin", definition.config
    )  # fmt: skip
