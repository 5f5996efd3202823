"""What a registration comes to: which rows are to be added. Pure: from what is known, as of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.store.catalog.base import MOST_NAMED, Identity, Registered
from perdure.store.catalog.rows import (
    AliasRow,
    ChangeRow,
    LabelRow,
    ReleaseRow,
    VersionRow,
    detail_text,
    release_row,
    version_row,
)
from perdure.version.definition import differences
from perdure.version.known import Known, KnownLabel, KnownVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from perdure.store.catalog.base import Action, Decide
    from perdure.version.definition import Definition
    from perdure.version.publication import Decision
    from perdure.version.survey import Release


class Stamp(NamedTuple):
    """Who changes something, when and why."""

    at: int
    actor: str
    reason: str


class Ends(NamedTuple):
    """The greatest number of each table."""

    release: int
    version: int
    label: int
    change: int


class Request(NamedTuple):
    """What is to be registered: see `perdure.store.catalog.base.Catalog.register`."""

    release: Release
    definitions: Sequence[Definition]
    decide: Decide
    stamp: Stamp
    commit: str | None
    aliases: Mapping[str, Collection[Identity]]

    @property
    def workflows(self) -> tuple[str, ...]:
        """The workflows it concerns."""
        return tuple(dict.fromkeys(definition.workflow for definition in self.definitions))

    def identities(self, definition: Definition) -> list[Identity]:
        """Return everything that a definition is known by."""
        return [Identity(definition.scheme, definition.sha256), *self.aliases.get(definition.sha256, ())]

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes it is known by."""
        return tuple({one.sha256 for definition in self.definitions for one in self.identities(definition)})


class Situation(NamedTuple):
    """What there is already.

    Attributes:
        known: of each workflow that is concerned.
        aliases: identity and workflow to the version.
        release: the release, if its tree is known.
        ends: the greatest numbers.
    """

    known: Mapping[str, Known]
    aliases: Mapping[tuple[Identity, str], int]
    release: ReleaseRow | None
    ends: Ends


class Registration:
    """The rows that a registration adds.

    Args:
        request: what is to be registered.
        there: what there is already.
        content: returns the content of a version that is there.

    Raises:
        Exception: what ``request.decide`` raises.
    """

    def __init__(self, request: Request, there: Situation, content: Callable[[int], Definition]) -> None:
        self._request = request
        self._known = dict(there.known)
        self._ends = there.ends
        self._content = content
        self._added: dict[int, Definition] = {}
        self._release = there.release or release_row(
            there.ends.release + 1, request.release, request.commit, request.stamp.at
        )
        self._aliases = dict(there.aliases)
        self._is_known_release = there.release is not None
        self.versions: list[VersionRow] = []
        self.refilled: list[int] = []
        """Purged versions that get their files from this release, so that they may be restored."""
        self.labels: list[LabelRow] = []
        self.aliases: list[AliasRow] = []
        self.changes: list[ChangeRow] = []
        self.registered: list[Registered] = [self._register(definition) for definition in request.definitions]

    @property
    def release(self) -> ReleaseRow | None:
        """The release, if it is to be added: if a version needs it."""
        return self._release if self.needs_files and not self._is_known_release else None

    @property
    def release_id(self) -> int:
        """The number of the release, if there is or will be one."""
        return self._release.id

    @property
    def needs_files(self) -> bool:
        """Whether the files of the release have to be there."""
        return bool(self.versions or self.refilled)

    @property
    def is_nothing(self) -> bool:
        """Whether everything is there already."""
        return not (self.needs_files or self.labels or self.aliases)

    def _register(self, definition: Definition) -> Registered:
        workflow = definition.workflow
        known = self._known[workflow]
        identities = self._request.identities(definition)
        found = next((self._aliases[one, workflow] for one in identities if (one, workflow) in self._aliases), None)
        same = definition if found is None else definition._replace(sha256=known.versions[found].sha256)
        decision = self._request.decide(known, same, lambda version: differences(self._of(version.id), definition))
        if decision.action == "seen":
            assert decision.version is not None  # noqa: S101 - what was seen is there
            version_id = decision.version.id
        else:
            version_id = self._publish(known, definition, decision)
        if decision.version is not None and decision.version.status == "purged":
            self.refilled.append(version_id)
        for one in identities:
            if (one, workflow) not in self._aliases:
                self._aliases[one, workflow] = version_id
                self.aliases.append(AliasRow(*one, version_id))
        return Registered(definition, decision, version_id, decision.label)

    def _publish(self, known: Known, definition: Definition, decision: Decision) -> int:
        """Add a label, and the version if it is new; return the version's number."""
        stamp = self._request.stamp
        seq = self._ends.label + len(self.labels) + 1
        versions = list(known.versions.values())
        detail: dict[str, Any] = {
            "label": decision.label, "semver": decision.semver, "commit": self._request.commit,
        }  # fmt: skip
        if decision.version is None:
            version_id = self._ends.version + len(self.versions) + 1
            self.versions.append(version_row(version_id, definition, self._release, stamp.at))
            self._added[version_id] = definition
            versions.append(KnownVersion(version_id, definition.sha256))
            self._note(definition.workflow, version_id, "published", detail | self._origin(known, definition))
        else:
            version_id = decision.version.id
            self._note(definition.workflow, version_id, "labelled", detail)
        workflow = definition.workflow
        self.labels.append(LabelRow(seq, workflow, decision.label, decision.semver, version_id, stamp.actor, stamp.at))
        label = KnownLabel(seq, decision.label, decision.semver, version_id, stamp.actor, stamp.at)
        self._known[workflow] = Known(workflow, versions, [*known.labels, label])
        return version_id

    def _note(self, workflow: str, version_id: int, action: Action, detail: Mapping[str, Any]) -> None:
        n = self._ends.change + len(self.changes) + 1
        at, actor, reason = self._request.stamp
        self.changes.append(ChangeRow(n, workflow, version_id, at, actor, action, reason, detail_text(detail)))

    def _origin(self, known: Known, definition: Definition) -> dict[str, Any]:
        """Return what a new version follows, and what differs from that."""
        previous = known.newest() or next(iter(known.labels), None)
        changed = [] if previous is None else differences(self._of(previous.version_id), definition)
        return {
            "release": self._release.id,
            "previous": None if previous is None else previous.version_id,
            "changed": changed[:MOST_NAMED],
            "changed_count": len(changed),
        }

    def _of(self, version_id: int) -> Definition:
        return self._added.get(version_id) or self._content(version_id)
