"""`SyncEngine.versions` and `SyncEngine.routes`. Each method calls the async one across and says no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from types import ModuleType

    from perdure.api.sync import SyncEngine
    from perdure.api.version_info import (
        BindingInfo,
        BumpCheck,
        LabelInfo,
        Published,
        RouteInfo,
        VersionChange,
        VersionCheck,
        VersionDetail,
        VersionDiff,
        VersionInfo,
        VersionsCollected,
    )
    from perdure.model.duration import Duration

_DEFAULT = "default"


class SyncVersions:
    """The versions of workflows, for code without an event loop; see `Versions`."""

    __slots__ = ("_engine",)

    def __init__(self, engine: SyncEngine) -> None:
        self._engine = engine

    def list(self, workflow: Any = None) -> tuple[VersionInfo, ...]:
        """Return the versions of a workflow, or of all; see `Versions.list`."""
        return self._engine.wait(self._engine.engine.versions.list(workflow))

    def get(self, workflow: Any, version: str) -> VersionDetail:
        """Return a version with its content; see `Versions.get`."""
        return self._engine.wait(self._engine.engine.versions.get(workflow, version))

    def diff(self, workflow: Any, a: str, b: str, *, sources: bool = False) -> VersionDiff:
        """Return what differs between two versions; see `Versions.diff`."""
        return self._engine.wait(self._engine.engine.versions.diff(workflow, a, b, sources=sources))

    def log(self, workflow: Any, since: datetime | None = None, limit: int = 100) -> tuple[VersionChange, ...]:
        """Return the record of changes of versions and routes, newest first; see `Versions.log`."""
        return self._engine.wait(self._engine.engine.versions.log(workflow, since, limit))

    def labels(self, workflow: Any) -> tuple[LabelInfo, ...]:
        """Return the labels of a workflow, greatest first; see `Versions.labels`."""
        return self._engine.wait(self._engine.engine.versions.labels(workflow))

    def publish(
        self,
        workflows: Iterable[Callable[..., Any] | ModuleType] | None = None,
        *,
        reason: str = "",
        actor: str | None = None,
    ) -> tuple[Published, ...]:
        """Make the versions of workflows known, as the start of a worker does; see `Versions.publish`."""
        return self._engine.wait(self._engine.engine.versions.publish(workflows, reason=reason, actor=actor))

    def check(
        self, workflows: Iterable[Callable[..., Any] | ModuleType] | None = None, *, against: str = "newest"
    ) -> tuple[BumpCheck, ...]:
        """Return whether workflows could be published as they are; see `Versions.check`."""
        return self._engine.wait(self._engine.engine.versions.check(workflows, against=against))

    def withdraw(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """Take a version out of use; see `Versions.withdraw`."""
        return self._engine.wait(self._engine.engine.versions.withdraw(workflow, version, reason=reason, actor=actor))

    def restore(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """Take a version that was withdrawn or closed back into use; see `Versions.restore`."""
        return self._engine.wait(self._engine.engine.versions.restore(workflow, version, reason=reason, actor=actor))

    def close(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """End the use of a version; see `Versions.close`."""
        return self._engine.wait(self._engine.engine.versions.close(workflow, version, reason=reason, actor=actor))

    def rollback(self, workflow: Any, *, reason: str, actor: str | None = None) -> tuple[VersionInfo, VersionInfo]:
        """Withdraw the newest version that new runs start on; they start on the one before; see `Versions.rollback`."""
        return self._engine.wait(self._engine.engine.versions.rollback(workflow, reason=reason, actor=actor))

    def source(self, workflow: Any, version: str, file: str | None = None) -> dict[str, bytes]:
        """Return the stored files of a version by path, or one of them; see `Versions.source`."""
        return self._engine.wait(self._engine.engine.versions.source(workflow, version, file))

    def verify(self, workflow: Any, version: str) -> VersionCheck:
        """Read all that is stored of a version, and compare it with its hashes; see `Versions.verify`."""
        return self._engine.wait(self._engine.engine.versions.verify(workflow, version))

    def of(self, run_id: str) -> BindingInfo:
        """Return the version a run is bound to, and why; see `Versions.of`."""
        return self._engine.wait(self._engine.engine.versions.of(run_id))

    def collect(
        self,
        *,
        keep: int = 10,
        closed_for: Duration = "7d",
        dry_run: bool = False,
        reason: str = "collected",
        actor: str | None = None,
    ) -> VersionsCollected:
        """Remove the code of closed versions that nothing needs; see `Versions.collect`."""
        return self._engine.wait(
            self._engine.engine.versions.collect(
                keep=keep, closed_for=closed_for, dry_run=dry_run, reason=reason, actor=actor
            )
        )


class SyncVersionRoutes:
    """Which versions new runs start on, for code without an event loop; see `VersionRoutes`."""

    __slots__ = ("_engine",)

    def __init__(self, engine: SyncEngine) -> None:
        self._engine = engine

    def show(self, workflow: Any) -> tuple[RouteInfo, ...]:
        """Return the routes of a workflow by channel; see `VersionRoutes.show`."""
        return self._engine.wait(self._engine.engine.routes.show(workflow))

    def set(
        self,
        workflow: Any,
        weights: Mapping[str, float],
        *,
        channel: str = _DEFAULT,
        reason: str,
        actor: str | None = None,
    ) -> RouteInfo:
        """Divide the new runs of a channel; see `VersionRoutes.set`."""
        return self._engine.wait(
            self._engine.engine.routes.set(workflow, weights, channel=channel, reason=reason, actor=actor)
        )

    def promote(self, workflow: Any, *, channel: str = _DEFAULT, reason: str, actor: str | None = None) -> RouteInfo:
        """Let new runs start on the newest version; see `VersionRoutes.promote`."""
        return self._engine.wait(
            self._engine.engine.routes.promote(workflow, channel=channel, reason=reason, actor=actor)
        )

    def clear(self, workflow: Any, *, channel: str = _DEFAULT, reason: str, actor: str | None = None) -> RouteInfo:
        """Take a route away; see `VersionRoutes.clear`."""
        return self._engine.wait(
            self._engine.engine.routes.clear(workflow, channel=channel, reason=reason, actor=actor)
        )

    def lead_to(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> RouteInfo | None:
        """Let new runs start on one version, whatever is newer; see `VersionRoutes.lead_to`."""
        return self._engine.wait(self._engine.engine.routes.lead_to(workflow, version, reason=reason, actor=actor))
