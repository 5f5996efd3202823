"""The part of the seam that is about versions: blobs, releases, versions, labels, routes and the record of changes.

What every backend must keep, and `perdure.testing.conformance.cataloguing` checks:

* **V1** A change is one transaction: all of its rows, the row of the record and the step of the count, or nothing.
* **V2** Changes are made one after the other, whoever makes them; what is decided is decided on what is there then.
* **V3** Versions keep their workflow and content; labels, routes and the record are only ever added to.
* **V4** The count grows with every change of versions, labels, status and routes, and with nothing else.
* **V5** A change that is made again, because its answer was lost, changes nothing.
* **V6** A version that is not purged has its release, and every blob of that release is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec

from perdure.store.catalog.plans import Plans
from perdure.version.known import Known

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from perdure.store.catalog.demand import Demand
    from perdure.version.definition import Definition
    from perdure.version.known import KnownLabel, KnownVersion, StatusChange, VersionStatus
    from perdure.version.manifest import Blob
    from perdure.version.publication import Decision, Differing
    from perdure.version.route import Route
    from perdure.version.scan import Scan
    from perdure.version.signature import Signature
    from perdure.version.survey import Release

    Decide = Callable[[Known, Definition, Differing], Decision]
    """(what is known of the workflow, what is registered, what tells the difference) -> what to write.

    Pure, and may raise: called inside the transaction, perhaps more than once. The third is for
    `perdure.version.publication.decide`; nothing else of the catalog may be asked in there."""
    Revise = Callable[[Known, Route | None], Route]
    """(what is known of the workflow, the revision before) -> the next one. Pure, and may raise."""

Action = Literal[
    "published", "labelled", "withdrawn", "restored", "closed", "purged", "route_set", "load_failed", "env_mismatch",
    "host_env_set", "upgrade_applied", "signed",
]  # fmt: skip
NOTED: Final[tuple[Action, ...]] = ("load_failed", "env_mismatch", "upgrade_applied", "host_env_set")
"""What happens to a version and changes nothing of it."""
MOST_NAMED: Final = 200
"""How many changed files a row of the record names."""


class Shelf(msgspec.Struct, frozen=True):
    """What is known of one workflow, as of one moment.

    Attributes:
        count: the count of changes then.
        known: its versions and labels.
        routes: channel to its route; those that were cleared are left out.
    """

    count: int
    known: Known
    routes: Mapping[str, Route]


class Identity(NamedTuple):
    """What content is known by: a hash, and the scheme it was made in."""

    scheme: str
    sha256: str


class Registered(NamedTuple):
    """What became of a definition.

    Attributes:
        definition: as it was given.
        decision: what was decided.
        version_id: the version it is.
        label: the label it goes by.
    """

    definition: Definition
    decision: Decision
    version_id: int
    label: str


class CatalogChange(NamedTuple):
    """A row of the record.

    Attributes:
        n: its place in the order of changes.
        workflow: the workflow it concerns.
        version_id: the version it concerns; None for a route.
        at: when, in microseconds.
        actor: who did it.
        action: what was done.
        reason: why.
        detail: what else is to be said, by action: see `Catalog.log`.
    """

    n: int
    workflow: str
    version_id: int | None
    at: int
    actor: str
    action: Action
    reason: str
    detail: Mapping[str, Any]


class StoredDefinition(NamedTuple):
    """A version with its content.

    Attributes:
        id: its number.
        definition: the content.
        labels: in the order of their publication.
        status: whether it takes new runs.
        changed: the last change of the status.
        release_id: the release it was first registered with.
        created_at: when, in microseconds.
        signatures: under any of its labels. Nobody has checked them.
    """

    id: int
    definition: Definition
    labels: tuple[KnownLabel, ...]
    status: VersionStatus
    changed: StatusChange | None
    release_id: int
    created_at: int
    signatures: tuple[Signature, ...] = ()


class StoredRelease(NamedTuple):
    """A release.

    Attributes:
        id: its number.
        release: what it is.
        source_commit: the commit it was made from, if that was said.
        created_at: when it was registered, in microseconds.
    """

    id: int
    release: Release
    source_commit: str | None
    created_at: int


class HostedRelease(NamedTuple):
    """What a version host of a release must know.

    Attributes:
        stored: the release.
        definitions: the versions that came with it first and are not purged.
        elsewhere: first-party names of other releases that are not its own, to a version that has each.
        environments: version to the variables that were set for its hosts, of those for which any were.
    """

    stored: StoredRelease
    definitions: tuple[StoredDefinition, ...]
    elsewhere: Mapping[str, str]
    environments: Mapping[int, Mapping[str, str]] = {}


class VersionUsage(NamedTuple):
    """Runs of one version in one state.

    Attributes:
        version_id: the version; 0 for runs that are bound to none.
        status: the state.
        runs: how many.
        oldest_at: when the first of them was created, in microseconds.
    """

    version_id: int
    status: str
    runs: int
    oldest_at: int


class Collected(NamedTuple):
    """What a collection removed, or would remove.

    Attributes:
        versions: those that were purged.
        blobs: how many contents were deleted.
        bytes: how many bytes these were, as they were stored.
    """

    versions: tuple[KnownVersion, ...]
    blobs: int
    bytes: int


class Blobs(Protocol):
    """Stored contents of files, by the SHA-256 of their bytes."""

    def scans(self, sha256s: Collection[str]) -> dict[str, Scan]:
        """Return what is kept of these contents as source. What another release has kept in its own way is left out."""
        ...

    def missing(self, sha256s: Collection[str]) -> list[str]:
        """Return those that are not there, in the order given."""
        ...

    def add_blobs(self, blobs: Iterable[Blob]) -> None:
        """Add contents, in transactions of bounded size. What is there already stays as it is."""
        ...

    def blobs(self, sha256s: Collection[str]) -> list[Blob]:
        """Return those of these contents that are there."""
        ...


class Catalog(Blobs, Plans, Protocol):
    """What one database knows of versions. Every method may raise `StoreUnavailable` or `StoreCorrupt`."""

    def count(self) -> int:
        """Return how many changes of versions, labels, status or routes there were so far. Cheap."""
        ...

    def shelf(self, workflow: str) -> Shelf:
        """Return what is known of a workflow, as of one moment. A workflow nobody knows has an empty one."""
        ...

    def workflows(self) -> list[str]:
        """Return the names of the workflows that have versions, in order."""
        ...

    def register(
        self, release: Release, definitions: Sequence[Definition], decide: Decide, *, at: int, actor: str, reason: str,
        commit: str | None = None, aliases: Mapping[str, Collection[Identity]] | None = None,
    ) -> list[Registered]:  # fmt: skip
        """Make the versions of a release known: all of its definitions, or, if anything is raised, none.

        A definition whose identity is known, by whatever scheme, is that version. Where everything is known already
        nothing is written and nobody waits. A release is kept if a version came with it first. A version that was
        purged gets its files back from the release, so that it can be restored.

        Args:
            release: the files, and what they stand on.
            definitions: one for each workflow.
            decide: says what each leads to.
            at: when, in microseconds.
            actor: who registers.
            reason: why.
            commit: the commit it was made from.
            aliases: SHA-256 of a definition to what the same content is called in other schemes.

        Raises:
            BlobsMissing: files of the release are not there: add them and do it again.
            Exception: what ``decide`` raised.
        """
        ...

    def set_status(
        self, workflow: str, version_id: int, status: VersionStatus, *, at: int, actor: str, reason: str
    ) -> bool:
        """Change whether a version takes new runs; False if it has that status already, and nothing was done.

        A version that was purged can be made active again if all of its files are there.

        Raises:
            UnknownVersion: the workflow has no such version.
            VersionPurged: its code is gone, or it is to be anything but active.
            UsageError: it is to be closed, and a route leads to it; or it is to be purged, which is not done here.
        """
        ...

    def set_route(self, workflow: str, channel: str, revise: Revise, *, at: int, actor: str, reason: str) -> Route:
        """Add the next revision of a route and return it. Without arms it is cleared.

        ``revise`` is given the last revision, also one that cleared the route. What is the same as before, or clears
        a route that there is not, is not added.

        Raises:
            UnknownVersion: an arm is no version of the workflow.
            VersionClosed: an arm takes no new runs.
            UsageError: ``revise`` gave no revision of this route.
            Exception: what ``revise`` raised.
        """
        ...

    def note(
        self, workflow: str, version_id: int, action: Action, detail: Mapping[str, Any], *, at: int, actor: str,
        reason: str,
    ) -> None:  # fmt: skip
        """Record something of `NOTED` that happened to a version.

        Raises:
            UnknownVersion: the workflow has no such version.
        """
        ...

    def add_signature(self, workflow: str, signature: Signature, *, reason: str) -> bool:
        """Keep a signature of a version, and record that; False if it is there already.

        Raises:
            UnknownVersion: the workflow has no such label.
        """
        ...

    def log(self, workflow: str, *, since: int | None = None, limit: int = 100) -> list[CatalogChange]:
        """Return the record of a workflow, newest first.

        The detail of ``published`` has: label, semver, release (its number), commit, previous (the version that was
        the default before, or else the greatest; null for the first), changed (what differs from that, at most
        `MOST_NAMED` names) and changed_count. That of ``labelled``: label, semver, commit. That of a change of status:
        from. That of ``route_set``: channel, revision, arms. That of ``signed``: label, key_id.

        Args:
            workflow: name of the workflow.
            since: leave out what is older, in microseconds.
            limit: at most so many.
        """
        ...

    def definition(self, version_id: int) -> StoredDefinition | None:
        """Return a version with its content."""
        ...

    def release(self, release_id: int) -> StoredRelease | None:
        """Return a release."""
        ...

    def hosted(self, release_id: int) -> HostedRelease | None:
        """Return what a version host of a release must know."""
        ...

    def demand(self, queues: Sequence[str], now: int) -> Demand:
        """Return what code due runs of these queues need, and who has it. Each part is of its own moment.

        Args:
            queues: names of queues.
            now: the database's clock.
        """
        ...

    def usage(self, statuses: Collection[str] = ()) -> list[VersionUsage]:
        """Count the runs of each version, by state. Reads every run that is in one of the states; of all by default."""
        ...

    def collect(self, *, keep: int, closed_before: int, unused_before: int, at: int, actor: str, reason: str,
                dry_run: bool = False) -> Collected:  # fmt: skip
        """Purge closed versions that nothing needs, and delete the contents that no version needs any more.

        The versions themselves, their labels and their record stay. Nobody can register meanwhile, and where there is
        something to purge every run is looked at.

        Args:
            keep: this many of the newest versions of each workflow stay in any case.
            closed_before: a version is purged if it was closed before this time, and no run is bound to it.
            unused_before: a content that no version needs is deleted if it was added before this time: one that was
                added lately may belong to a registration that is under way.
            at: when, in microseconds.
            actor: who does it.
            reason: why.
            dry_run: only say what would be done.
        """
        ...
