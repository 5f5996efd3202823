"""The publications of one workflow in memory, as registration would write them."""

from __future__ import annotations

from typing import Any

from perdure.version.known import Known, KnownLabel, KnownVersion, StatusChange, VersionStatus
from perdure.version.publication import Decision, decide

OLD = "5f2a9c1e" + "0" * 56
BAD = "d8ad199c" + "1" * 56
NEW = "77aa77aa" + "2" * 56


class History:
    """Versions and labels that grow as decisions say."""

    def __init__(self, workflow: str = "order") -> None:
        self.workflow = workflow
        self.versions: list[KnownVersion] = []
        self.labels: list[KnownLabel] = []

    @property
    def known(self) -> Known:
        return Known(self.workflow, self.versions, self.labels)

    def register(self, sha256: str, semver: str | None, **settings: Any) -> Decision:
        """Decide, and write what was decided."""
        decision = decide(self.known, sha256, semver, **settings)
        version = decision.version
        if version is None:
            version = KnownVersion(len(self.versions) + 1, sha256)
            self.versions.append(version)
        if decision.action != "seen":
            self.labels.append(KnownLabel(len(self.labels) + 1, decision.label, decision.semver, version.id))
        return decision

    def mark(self, sha256: str, status: VersionStatus) -> None:
        """Change the status of a version."""
        changed = StatusChange("2026-03-02", "ana", "double charge")
        self.versions = [
            version._replace(status=status, changed=changed) if version.sha256 == sha256 else version
            for version in self.versions
        ]

    @property
    def newest(self) -> str | None:
        """The content that new runs start on."""
        label = self.known.newest()
        return None if label is None else self.known.version_of(label).sha256

    @property
    def texts(self) -> list[str]:
        return [label.text for label in self.labels]


def published(*pairs: tuple[str, str]) -> History:
    """Return a history of these publications: hash and semantic version."""
    history = History()
    for sha256, semver in pairs:
        history.register(sha256, semver)
    return history
