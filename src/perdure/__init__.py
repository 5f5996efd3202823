"""Durable workflows in plain Python: a run finishes, once, on the code it began with."""

from __future__ import annotations

from perdure import guard
from perdure.api import blocking
from perdure.api.context import (
    BodyInfo,
    StepInfo,
    checkpoint,
    info,
    now,
    patched,
    publish,
    random,
    resource,
    sleep,
    step_info,
    uuid4,
)
from perdure.api.decorators import Workflow, step, workflow
from perdure.api.engine import Engine
from perdure.api.health import EngineStats
from perdure.api.many import Start
from perdure.api.queues import QueueChange, QueueHandle, QueueInfo, QueueSettings
from perdure.api.reading import Event, RunInfo
from perdure.api.run import Run
from perdure.api.sync import SyncEngine, SyncQueueHandle, SyncRun
from perdure.api.sync_upgrades import SyncUpgrades
from perdure.api.sync_versions import SyncVersionRoutes, SyncVersions
from perdure.api.upgrades import PlannedRun, UpgradePlan, UpgradeResult, Upgrades
from perdure.api.version_info import (
    BindingInfo,
    BumpCheck,
    LabelInfo,
    OperationVersion,
    Published,
    RouteArm,
    RouteInfo,
    VersionChange,
    VersionCheck,
    VersionDetail,
    VersionDiff,
    VersionInfo,
    VersionsCollected,
    VersionSignature,
)
from perdure.api.versions import VersionRoutes, Versions
from perdure.errors import (
    BindingGuard,
    CodecError,
    Diverged,
    EnvironmentMismatch,
    GuardBusy,
    GuardConflict,
    GuardError,
    HostCrashed,
    IdConflict,
    InvalidValue,
    LeaseLost,
    NoSource,
    NotInSnapshot,
    NotPublished,
    PerdureError,
    RunCancelled,
    RunError,
    RunFailed,
    RunNotFound,
    RunParked,
    RunTerminated,
    RunTimedOut,
    SchemaTooNew,
    SignatureInvalid,
    SnapshotCorrupt,
    SnapshotTooLarge,
    SourceChangedOnDisk,
    StateMismatch,
    StepFailed,
    StepInterrupted,
    StepTimedOut,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    UnbumpedChange,
    UnknownVersion,
    UpgradeBusy,
    UpgradeRefused,
    UpgradeStale,
    UsageError,
    VersionClosed,
    VersionError,
    VersionLoadFailed,
    VersionPurged,
)
from perdure.guard.database import Database
from perdure.kernel import ordered
from perdure.kernel.kinds.step import AsyncStep, SyncStep
from perdure.model.cache import CacheStats
from perdure.model.duration import Duration
from perdure.model.policy import Retry
from perdure.model.queue import Queue, Rate
from perdure.model.status import EventType, Status
from perdure.replay.verdict import Verdict, VerdictKind

ordered.install()

__version__ = "0.1.0"
__all__ = [
    "AsyncStep", "BindingGuard", "BindingInfo", "BodyInfo", "BumpCheck", "CacheStats", "CodecError", "Database",
    "Diverged", "Duration", "Engine", "EngineStats", "EnvironmentMismatch", "Event", "EventType", "GuardBusy",
    "GuardConflict", "GuardError", "HostCrashed", "IdConflict", "InvalidValue", "LabelInfo", "LeaseLost",
    "NoSource", "NotInSnapshot", "NotPublished", "OperationVersion", "PerdureError", "PlannedRun", "Published",
    "Queue", "QueueChange", "QueueHandle", "QueueInfo", "QueueSettings", "Rate", "Retry", "RouteArm", "RouteInfo",
    "Run", "RunCancelled", "RunError", "RunFailed", "RunInfo", "RunNotFound", "RunParked", "RunTerminated",
    "RunTimedOut", "SchemaTooNew", "SignatureInvalid", "SnapshotCorrupt", "SnapshotTooLarge", "SourceChangedOnDisk",
    "Start", "StateMismatch", "Status", "StepFailed", "StepInfo", "StepInterrupted", "StepTimedOut", "StoreCorrupt",
    "StoreError", "StoreUnavailable", "SyncEngine", "SyncQueueHandle", "SyncRun", "SyncStep", "SyncUpgrades",
    "SyncVersionRoutes", "SyncVersions", "UnbumpedChange", "UnknownVersion", "UpgradeBusy", "UpgradePlan",
    "UpgradeRefused", "UpgradeResult", "UpgradeStale", "Upgrades", "UsageError", "Verdict", "VerdictKind",
    "VersionChange", "VersionCheck", "VersionClosed", "VersionDetail", "VersionDiff", "VersionError", "VersionInfo",
    "VersionLoadFailed", "VersionPurged", "VersionRoutes", "VersionSignature", "Versions", "VersionsCollected",
    "Workflow", "blocking", "checkpoint", "guard", "info", "now", "patched", "publish", "random", "resource",
    "sleep", "step", "step_info", "uuid4", "workflow",
]  # fmt: skip
