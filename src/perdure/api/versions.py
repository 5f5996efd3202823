"""`Engine.versions` and `Engine.routes`: versions of workflows, and which of them new runs start on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from perdure.api import reading, version_acting, version_reading
from perdure.api.collect import collect
from perdure.api.version_binding import binding_of
from perdure.errors import InvalidValue
from perdure.kernel.definition import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from types import ModuleType

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
    from perdure.api.versioning import Registrars
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.duration import Duration
    from perdure.runtime.connection import Connection
    from perdure.store.base import Store
    from perdure.version.known import VersionStatus

P = ParamSpec("P")
T = TypeVar("T")
_DEFAULT = "default"


class Owner(Protocol):
    """The engine, as far as versions need it."""

    @property
    def connection(self) -> Connection:
        """The open connection."""
        ...


class _Asking:
    """Asks an engine's database, on its reading thread."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Owner) -> None:
        self._engine = engine

    async def _ask(self, function: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self._engine.connection
        found: T = await connection.read(partial(function, connection.store, *args, **kwargs))
        return found


class Versions(_Asking):
    """The versions of workflows in a database: what there is, what it holds, what is done to it.

    A version is named by a label such as ``1.3.0``, by the beginning of its hash (at least 8 digits), or by a range
    such as ``>=1.2,<2``, which means the greatest in it. A workflow may be given by its name.
    """

    __slots__ = ("_registrar",)

    def __init__(self, engine: Owner, registrar: Registrars) -> None:
        super().__init__(engine)
        self._registrar = registrar

    async def list(self, workflow: Any = None) -> tuple[VersionInfo, ...]:
        """Return the versions of a workflow, or of all, those with the greatest labels first."""
        name = None if workflow is None else name_of(workflow)
        return await self._ask(version_reading.listed, name)

    async def get(self, workflow: Any, version: str) -> VersionDetail:
        """Return a version with its content.

        Raises:
            UnknownVersion: there is no such version.
        """
        return await self._ask(version_reading.detail, name_of(workflow), _version(version))

    async def diff(self, workflow: Any, a: str, b: str, *, sources: bool = False) -> VersionDiff:
        """Return what differs between two versions.

        Args:
            workflow: workflow or its name.
            a: the one.
            b: the other.
            sources: also read the files, and give their unified diff.

        Raises:
            UnknownVersion: there is no such version.
            VersionPurged: the files are asked for, and are no longer stored.
        """
        return await self._ask(version_reading.diff, name_of(workflow), _version(a), _version(b), sources=sources)

    async def log(self, workflow: Any, since: datetime | None = None, limit: int = 100) -> tuple[VersionChange, ...]:
        """Return the record of changes of versions and routes, newest first.

        Args:
            workflow: workflow or its name.
            since: leave out what is older.
            limit: at most so many.
        """
        if type(limit) is not int or limit < 0:
            message = f"limit must be a whole number of at least 0, not {limit!r}"
            raise InvalidValue(message)
        return await self._ask(version_reading.changes, name_of(workflow), reading.stored_moment(since, "since"), limit)

    async def labels(self, workflow: Any) -> tuple[LabelInfo, ...]:
        """Return the labels of a workflow, greatest first."""
        return await self._ask(version_reading.labels, name_of(workflow))

    async def publish(
        self, workflows: Iterable[Callable[..., Any] | ModuleType] | None = None, *, reason: str = "",
        actor: str | None = None,
    ) -> tuple[Published, ...]:  # fmt: skip
        """Make the versions of workflows known, as the start of a worker does. Needs their code, and no worker.

        Args:
            workflows: workflows or modules; those of the engine by default.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            UnbumpedChange: a change kept its number, and ``on_unbumped="refuse"``.
            NoSource: the source of a workflow cannot be read.
            SnapshotTooLarge: the first-party files are too large to be stored.
        """
        registrar = self._registrar(_collected(workflows), actor, reason)
        found: tuple[Published, ...] = await self._engine.connection.read(version_acting.publish, registrar)
        return found

    async def check(
        self, workflows: Iterable[Callable[..., Any] | ModuleType] | None = None, *, against: str = "newest"
    ) -> tuple[BumpCheck, ...]:  # fmt: skip
        """Return whether workflows could be published under the numbers they have, and propose better ones.

        Args:
            workflows: workflows or modules; those of the engine by default.
            against: version to compare with.

        Raises:
            NoSource: the source of a workflow cannot be read.
            UnknownVersion: there is no such version.
        """
        registrar = self._registrar(_collected(workflows), None, "")
        return await self._ask(version_acting.bump_checks, registrar, against)

    async def withdraw(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """Take a version out of use: new runs start on it only if they, or a route, name it. Runs that have it go on.

        Args:
            workflow: workflow or its name.
            version: the version.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            UnknownVersion: there is no such version.
            VersionPurged: its code is no longer stored.
        """
        return await self._status(workflow, version, "withdrawn", actor, reason)

    async def restore(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """Take a version that was withdrawn or closed back into use; see `withdraw`."""
        return await self._status(workflow, version, "active", actor, reason)

    async def close(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> VersionInfo:
        """End the use of a version: no new runs at all. Runs that are bound to it go on; see `withdraw`.

        Raises:
            UnknownVersion: there is no such version.
            VersionPurged: its code is no longer stored.
            UsageError: a route leads to it.
        """
        return await self._status(workflow, version, "closed", actor, reason)

    async def rollback(
        self, workflow: Any, *, reason: str, actor: str | None = None
    ) -> tuple[VersionInfo, VersionInfo]:
        """Withdraw the newest version that new runs start on; they start on the one before. Returns both.

        The version is taken out of the default route too. Runs that are bound to it go on.

        Args:
            workflow: workflow or its name.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            UnknownVersion: there is no version before.
        """
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.roll_back, name_of(workflow), by)

    async def source(self, workflow: Any, version: str, file: str | None = None) -> dict[str, bytes]:
        """Return the stored files of a version by path, or one of them, each checked against its hash.

        Raises:
            UnknownVersion: there is no such version, or no such file.
            VersionPurged: its code is no longer stored.
            SnapshotCorrupt: what is stored is not what was registered.
        """
        return await self._ask(version_reading.source, name_of(workflow), _version(version), file)

    async def verify(self, workflow: Any, version: str) -> VersionCheck:
        """Read all that is stored of a version, and compare it with its hashes. Nothing of it is executed.

        Raises:
            UnknownVersion: there is no such version.
            VersionPurged: its code is no longer stored.
        """
        return await self._ask(version_reading.verified, name_of(workflow), _version(version))

    async def of(self, run_id: str) -> BindingInfo:
        """Return the version a run is bound to, why, and the version that each of its operations was recorded under.

        Raises:
            RunNotFound: there is no such run, or its history was purged.
        """
        return await binding_of(self._engine.connection, run_id)

    async def collect(
        self, *, keep: int = 10, closed_for: Duration = "7d", dry_run: bool = False, reason: str = "collected",
        actor: str | None = None,
    ) -> VersionsCollected:  # fmt: skip
        """Remove the code of closed versions that nothing needs. Their labels and their record stay.

        A version stays while a run is bound to it, or to another version of its release.

        Args:
            keep: so many of the newest versions of each workflow stay in any case.
            closed_for: how long a version has to be closed.
            dry_run: only say what would be removed.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.
        """
        if type(keep) is not int or keep < 0:
            message = f"keep must be a whole number of at least 0, not {keep!r}"
            raise InvalidValue(message)
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.collect, keep, closed_for, by, dry_run=dry_run)

    async def _status(
        self, workflow: Any, version: str, status: VersionStatus, actor: str | None, reason: str
    ) -> VersionInfo:
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.set_status, name_of(workflow), _version(version), status, by)


class VersionRoutes(_Asking):
    """How new runs are divided among the versions of a workflow.

    Not the queues they are put on, which are called routes too: those are the ``routes`` that an `Engine` is given.
    """

    __slots__ = ()

    async def show(self, workflow: Any) -> tuple[RouteInfo, ...]:
        """Return the routes of a workflow by channel. Without one for ``default`` all new runs start on the newest."""
        return await self._ask(version_reading.routes, name_of(workflow))

    async def set(
        self, workflow: Any, weights: Mapping[str, float], *, channel: str = _DEFAULT, reason: str,
        actor: str | None = None,
    ) -> RouteInfo:  # fmt: skip
        """Divide the new runs of a channel: ``{"2.0.0": 5, "1.3.0": 95}``. Later versions get none until it is changed.

        A run falls on a version by its id, or by the ``routing_key`` of its start. Versions that were in the route keep
        their keys where the weights allow it: the first grows without losing one.

        Args:
            workflow: workflow or its name.
            weights: version to weight, of any sum.
            channel: name of the route; ``default`` is that of starts which name none.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            InvalidValue: a weight is negative or no number, all are zero, or a version is there twice.
            UnknownVersion: there is no such version.
            VersionClosed: a version takes no new runs.
        """
        by = version_acting.why(actor, reason)
        checked = {_version(version): weight for version, weight in weights.items()}
        return await self._ask(version_acting.set_route, name_of(workflow), channel, checked, by)

    async def promote(
        self, workflow: Any, *, channel: str = _DEFAULT, reason: str, actor: str | None = None
    ) -> RouteInfo:
        """Let new runs start on the newest version: the default route is cleared, another leads to the newest alone.

        Args:
            workflow: workflow or its name.
            channel: name of the route.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            UnknownVersion: there is no version that could be the default.
        """
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.promote, name_of(workflow), channel, by)

    async def clear(
        self, workflow: Any, *, channel: str = _DEFAULT, reason: str, actor: str | None = None
    ) -> RouteInfo:
        """Take a route away; starts that name its channel are refused, unless that is ``default``. See `promote`."""
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.clear_route, name_of(workflow), channel, by)

    async def lead_to(self, workflow: Any, version: str, *, reason: str, actor: str | None = None) -> RouteInfo | None:
        """Let new runs start on one version, whatever is newer. Returns None if they do already; see `promote`."""
        by = version_acting.why(actor, reason)
        return await self._ask(version_acting.lead_to, name_of(workflow), _version(version), by)


def _collected(workflows: Iterable[Any] | None) -> dict[str, WorkflowDefinition] | None:
    return None if workflows is None else dict(collect(workflows)[0])


def name_of(workflow: Any) -> str:
    """Return the name of a workflow that is given by itself or by its name. Raises `UsageError`."""
    return check_name(getattr(workflow, "name", workflow), "a workflow's name")


def _version(version: str) -> str:
    return check_name(version, "a version")
