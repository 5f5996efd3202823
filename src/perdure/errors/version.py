"""Why there is no code for a version, or no version for code.

The texts are whole sentences that say what to do, so they have no hint.
"""

from __future__ import annotations

from perdure.errors.root import PerdureError


class VersionError(PerdureError):
    """No code here for the version a run is bound to, or versions contradict each other."""

    code = "version"


class NoSource(VersionError):
    """A module that belongs to a workflow has no source file that can be read, so it cannot be bound to a version."""

    code = "no_source"


class NotPublished(VersionError):
    """The worker's code is unknown to the database, and only published code may run."""

    code = "not_published"


class SnapshotCorrupt(VersionError):
    """Stored source is not what was registered; nothing of it was run, nor left on disk."""

    code = "snapshot_corrupt"


class SnapshotTooLarge(VersionError):
    """The first-party files are too large to be stored with a version."""

    code = "snapshot_too_large"


class UnbumpedChange(VersionError):
    """The semantic version belongs to other content, and the policy refuses to label this content apart."""

    code = "unbumped_change"


class UnknownVersion(VersionError):
    """No published version of the workflow is meant by what was asked for."""

    code = "unknown_version"


class VersionClosed(VersionError):
    """The version takes no new runs."""

    code = "version_closed"


class VersionPurged(VersionError):
    """The code of the version is no longer stored."""

    code = "version_purged"
