"""Why there is no code for a version, or no version for code.

The texts are whole sentences that say what to do, so they have no hint.
"""

from __future__ import annotations

from typing import Any

from perdure.errors.root import PerdureError


class VersionError(PerdureError):
    """No code here for the version a run is bound to, or versions contradict each other."""

    code = "version"


class BindingGuard(VersionError):
    """Something else than an upgrade would have bound a run to another version."""

    code = "binding_guard"


class EnvironmentMismatch(VersionError):
    """What a version stands on is not installed here."""

    code = "environment_mismatch"


class HostCrashed(VersionError):
    """The process that runs an old version ended again and again."""

    code = "host_crashed"


class NoSource(VersionError):
    """A module that belongs to a workflow has no source file that can be read, so it cannot be bound to a version."""

    code = "no_source"


class NotInSnapshot(VersionError, ModuleNotFoundError):
    """Code of an old version imports a module that is not part of it; another version's was not taken instead.

    Also a ModuleNotFoundError, whose ``name`` is the module: to the old code it is as if the module was not there.
    """

    code = "not_in_snapshot"

    def __init__(self, text: str = "", *, name: str | None = None) -> None:
        super().__init__(text)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        call, args, state = super().__reduce__()
        return call, args, {**state, "name": self.name}  # of ImportError, and not in `__dict__`


class NotPublished(VersionError):
    """The worker's code is unknown to the database, and only published code may run."""

    code = "not_published"


class SnapshotCorrupt(VersionError):
    """Stored source is not what was registered; nothing of it was run, nor left on disk."""

    code = "snapshot_corrupt"


class SnapshotTooLarge(VersionError):
    """The first-party files are too large to be stored with a version."""

    code = "snapshot_too_large"


class SourceChangedOnDisk(VersionError):
    """A module to import is not the one that this worker registered: old and new code would be mixed."""

    code = "source_changed_on_disk"


class UnbumpedChange(VersionError):
    """The semantic version belongs to other content, and the policy refuses to label this content apart."""

    code = "unbumped_change"


class UnknownVersion(VersionError):
    """No published version of the workflow is meant by what was asked for."""

    code = "unknown_version"


class UpgradeBusy(VersionError):
    """The run is inside a step, so nobody else may change what it is bound to."""

    code = "upgrade_busy"


class UpgradeRefused(VersionError):
    """What the check of the run's history found is not accepted.

    Attributes:
        verdict: The `Verdict`; None where there was no check.
    """

    code = "upgrade_refused"

    def __init__(self, text: str = "", *, verdict: Any = None) -> None:
        super().__init__(text)
        self.verdict: Any = verdict


class UpgradeStale(VersionError):
    """The run has moved on since it was checked."""

    code = "upgrade_stale"


class VersionClosed(VersionError):
    """The version takes no new runs."""

    code = "version_closed"


class VersionPurged(VersionError):
    """The code of the version is no longer stored."""

    code = "version_purged"


class VersionLoadFailed(VersionError):
    """The stored code of a version raised while it was loaded, or has no such workflow."""

    code = "version_load_failed"
