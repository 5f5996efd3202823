"""What a database knows of one workflow's versions and labels, and the order of the labels.

A *version* is content, one for each hash. A *label* is a publication: the first time that a pair of semantic version
and content was seen. One version may carry several labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from perdure.version.label import NO_SEMVER, SHORT, Semver, parse

VersionStatus = Literal["active", "withdrawn", "closed", "purged"]


class StatusChange(NamedTuple):
    """Who changed a version's status, when and why."""

    on: str
    """The day, such as ``2026-03-02``."""
    actor: str
    reason: str

    def __str__(self) -> str:
        return f'on {self.on} by {self.actor} ("{self.reason}")'


class KnownVersion(NamedTuple):
    """One content of a workflow.

    Attributes:
        id: its key in the database.
        sha256: its identity, in hex.
        status: whether it takes new runs: by itself (active), only if named (withdrawn), or not at all.
        changed: the last change of the status.
    """

    id: int
    sha256: str
    status: VersionStatus = "active"
    changed: StatusChange | None = None


class KnownLabel(NamedTuple):
    """One publication of a workflow.

    Attributes:
        seq: its place in the order of publications.
        text: the label, unique within the workflow, such as ``1.3.0+5f2a9c1e``.
        semver: the semantic version it was published with.
        version_id: the content.
        published_by: who published it.
        published_at: when, in microseconds.
    """

    seq: int
    text: str
    semver: str
    version_id: int
    published_by: str = ""
    published_at: int = 0


class Known:
    """All versions and labels of one workflow, as they were read in one transaction."""

    def __init__(self, workflow: str, versions: Iterable[KnownVersion], labels: Iterable[KnownLabel]) -> None:
        self.workflow = workflow
        self.versions: dict[int, KnownVersion] = {version.id: version for version in versions}
        self.labels: list[KnownLabel] = sorted(labels, key=self.place, reverse=True)
        """Greatest first."""

    def semver(self, label: KnownLabel) -> Semver:
        """Return the semantic version of a label."""
        return parse(label.semver)

    def place(self, label: KnownLabel) -> tuple[object, int]:
        """Return where a label stands: by semantic precedence, then by publication."""
        return self.semver(label).precedence, label.seq

    def version_of(self, label: KnownLabel) -> KnownVersion:
        """Return the content that a label names."""
        return self.versions[label.version_id]

    def by_hash(self, sha256: str) -> KnownVersion | None:
        """Return the version with this content."""
        return next((version for version in self.versions.values() if version.sha256 == sha256), None)

    def label_of(self, version: KnownVersion) -> KnownLabel | None:
        """Return the greatest label of a version."""
        return next((label for label in self.labels if label.version_id == version.id), None)

    def newest(self) -> KnownLabel | None:
        """Return the label that new runs start on: the greatest that is no pre-release and whose version is active."""
        return next((label for label in self.labels if self.is_eligible(label)), None)

    def is_eligible(self, label: KnownLabel) -> bool:
        """Whether a label may become the newest by itself."""
        return not self.semver(label).is_pre_release and self.version_of(label).status == "active"

    def free_label(self, semver: Semver, sha256: str) -> str:
        """Return a label that tells content apart, with as many digits of its hash as it takes."""
        taken = {label.text for label in self.labels}
        for digits in range(SHORT, len(sha256) + 1):
            label = semver.with_hash(sha256[:digits])
            if label not in taken:
                return label
        message = f"every label of {self.workflow} for {sha256} is taken"
        raise ValueError(message)


def unlabelled() -> Semver:
    """Return the semantic version of a workflow that gives none."""
    return parse(NO_SEMVER)
