"""Every error a user can see, as one tree.

    PerdureError                  error
    ├── UsageError                usage              the caller's mistake; nothing was stored
    │   └── InvalidValue          invalid_value      also a ValueError
    ├── RunError                  run                about one run
    │   ├── RunFailed             run_failed         its body raised
    │   ├── RunCancelled          run_cancelled
    │   ├── RunTimedOut           run_timed_out
    │   ├── RunTerminated         run_terminated
    │   ├── RunParked             run_parked         it waits for a person or for code
    │   ├── RunNotFound           run_not_found
    │   └── IdConflict            id_conflict        the id belongs to another start
    ├── StepFailed                step_failed        the step's own exception class is not here
    │   ├── StepTimedOut          step_timed_out
    │   └── StepInterrupted       step_interrupted   nobody knows whether it had its effect
    ├── StoreError                store
    │   ├── StoreUnavailable      store_unavailable  try again later
    │   ├── StoreCorrupt          store_corrupt
    │   ├── SchemaTooNew          schema_too_new
    │   ├── BlobsMissing          blobs_missing      internal: files of a release are still to be stored
    │   └── StoreConflict         store_conflict     internal: an append lost its race
    ├── GuardError                guard              a write of the application that is guarded
    │   ├── GuardConflict         guard_conflict     the request id was used for something else
    │   ├── GuardBusy             guard_busy         another transaction is at it; try again
    │   └── StateMismatch         state_mismatch     the row is not in the expected state
    ├── LeaseLost                 lease_lost         another worker owns the run now
    ├── CodecError                codec              a value cannot be stored or read exactly
    ├── Diverged                  diverged           replay asked for something else
    └── VersionError              version            no code for the version of a run
        ├── BindingGuard          binding_guard      only an upgrade changes what a run is bound to
        ├── EnvironmentMismatch   environment_mismatch what it stands on is not installed here
        ├── HostCrashed           host_crashed       the process that runs it ended again and again
        ├── NoSource              no_source          a workflow's code has no source to keep
        ├── NotInSnapshot         not_in_snapshot    old code imports what is not part of it; also a ModuleNotFoundError
        ├── NotPublished          not_published      this worker may not publish, and its code is unknown
        ├── SnapshotCorrupt       snapshot_corrupt   stored code is not what was registered
        ├── SnapshotTooLarge      snapshot_too_large first-party files are too large to be kept
        ├── SourceChangedOnDisk   source_changed_on_disk files changed under a worker
        ├── UnbumpedChange        unbumped_change    other code under a number that is taken
        ├── UnknownVersion        unknown_version    no such version is published
        ├── UpgradeBusy           upgrade_busy       the run is inside a step
        ├── UpgradeRefused        upgrade_refused    what its check found is not accepted
        ├── UpgradeStale          upgrade_stale      the run has moved on since it was checked
        ├── VersionClosed         version_closed     the version takes no new runs
        ├── VersionPurged         version_purged     the version's code is gone
        └── VersionLoadFailed     version_load_failed its code raised while it was loaded

Invariants:

INV-1  ``code`` is a stable string, unique per class. HTTP problem documents, metrics labels
       and exit codes are derived from it, never from the class name or the text.
INV-2  ``str(error)`` says what happened, to which run and step, and what to do next.
INV-3  All state is in ``args`` and ``__dict__``, so that an error can be pickled, copied and
       stored without calling its constructor.
INV-4  Each class says ``perdure.errors`` of itself, whatever file it is in: stored errors are found by that name.

It imports nothing else of the library, so every layer can raise from it.
"""

from __future__ import annotations

from perdure.errors.guard import GuardBusy, GuardConflict, GuardError, StateMismatch
from perdure.errors.root import CodecError, Diverged, InvalidValue, LeaseLost, PerdureError, UsageError
from perdure.errors.root import _rebuild as _rebuild  # pickles of errors name it here
from perdure.errors.run import (
    IdConflict,
    RunCancelled,
    RunError,
    RunFailed,
    RunNotFound,
    RunParked,
    RunTerminated,
    RunTimedOut,
)
from perdure.errors.step import StepFailed, StepInterrupted, StepTimedOut
from perdure.errors.store import BlobsMissing, SchemaTooNew, StoreConflict, StoreCorrupt, StoreError, StoreUnavailable
from perdure.errors.version import (
    BindingGuard,
    EnvironmentMismatch,
    HostCrashed,
    NoSource,
    NotInSnapshot,
    NotPublished,
    SnapshotCorrupt,
    SnapshotTooLarge,
    SourceChangedOnDisk,
    UnbumpedChange,
    UnknownVersion,
    UpgradeBusy,
    UpgradeRefused,
    UpgradeStale,
    VersionClosed,
    VersionError,
    VersionLoadFailed,
    VersionPurged,
)

__all__ = [
    "BindingGuard",
    "BlobsMissing",
    "CodecError",
    "Diverged",
    "EnvironmentMismatch",
    "GuardBusy",
    "GuardConflict",
    "GuardError",
    "HostCrashed",
    "IdConflict",
    "InvalidValue",
    "LeaseLost",
    "NoSource",
    "NotInSnapshot",
    "NotPublished",
    "PerdureError",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunNotFound",
    "RunParked",
    "RunTerminated",
    "RunTimedOut",
    "SchemaTooNew",
    "SnapshotCorrupt",
    "SnapshotTooLarge",
    "SourceChangedOnDisk",
    "StateMismatch",
    "StepFailed",
    "StepInterrupted",
    "StepTimedOut",
    "StoreConflict",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "UnbumpedChange",
    "UnknownVersion",
    "UpgradeBusy",
    "UpgradeRefused",
    "UpgradeStale",
    "UsageError",
    "VersionClosed",
    "VersionError",
    "VersionLoadFailed",
    "VersionPurged",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
