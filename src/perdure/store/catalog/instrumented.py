"""The wrapper around every catalog: see `perdure.store.instrumented`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from perdure.store.catalog.base import (
        Action,
        Catalog,
        CatalogChange,
        Collected,
        Decide,
        HostedRelease,
        Identity,
        Registered,
        Revise,
        Shelf,
        StoredDefinition,
        StoredRelease,
        VersionUsage,
    )
    from perdure.store.catalog.demand import Demand
    from perdure.store.catalog.plans import ItemRow, PlanRow
    from perdure.store.upgrade import UpgradeRow
    from perdure.version.definition import Definition
    from perdure.version.known import VersionStatus
    from perdure.version.manifest import Blob
    from perdure.version.route import Route
    from perdure.version.scan import Scan
    from perdure.version.survey import Release

P = ParamSpec("P")
R = TypeVar("R")


class Calling(Protocol):
    """Calls a function, counts it under a name, and raises what an error of a driver means in its place."""

    def __call__(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns."""
        ...


class InstrumentedBlobs:
    """See `perdure.store.catalog.base.Blobs`."""

    def __init__(self, inner: Catalog, call: Calling) -> None:
        self.inner = inner
        self._call = call

    def scans(self, sha256s: Collection[str]) -> dict[str, Scan]:
        """See `perdure.store.catalog.base.Blobs.scans`."""
        return self._call("scans", self.inner.scans, sha256s)

    def missing(self, sha256s: Collection[str]) -> list[str]:
        """See `perdure.store.catalog.base.Blobs.missing`."""
        return self._call("missing", self.inner.missing, sha256s)

    def add_blobs(self, blobs: Iterable[Blob]) -> None:
        """See `perdure.store.catalog.base.Blobs.add_blobs`."""
        self._call("add_blobs", self.inner.add_blobs, blobs)

    def blobs(self, sha256s: Collection[str]) -> list[Blob]:
        """See `perdure.store.catalog.base.Blobs.blobs`."""
        return self._call("blobs", self.inner.blobs, sha256s)


class InstrumentedPlans(InstrumentedBlobs):
    """See `perdure.store.catalog.plans.Plans`."""

    def add_plan(self, plan: PlanRow, items: Sequence[ItemRow]) -> None:
        """See `perdure.store.catalog.plans.Plans.add_plan`."""
        return self._call("add_plan", self.inner.add_plan, plan, items)

    def plan(self, plan_id: str) -> tuple[PlanRow, list[ItemRow]] | None:
        """See `perdure.store.catalog.plans.Plans.plan`."""
        return self._call("upgrade_plan", self.inner.plan, plan_id)

    def upgrades_by(self, plan_id: str) -> list[UpgradeRow]:
        """See `perdure.store.catalog.plans.Plans.upgrades_by`."""
        return self._call("upgrades_by", self.inner.upgrades_by, plan_id)

    def upgrades_of(self, run_id: str) -> list[UpgradeRow]:
        """See `perdure.store.catalog.plans.Plans.upgrades_of`."""
        return self._call("upgrades_of", self.inner.upgrades_of, run_id)


class InstrumentedCatalog(InstrumentedPlans):
    """See `perdure.store.catalog.base.Catalog`."""

    def count(self) -> int:
        """See `perdure.store.catalog.base.Catalog.count`."""
        return self._call("version_count", self.inner.count)

    def shelf(self, workflow: str) -> Shelf:
        """See `perdure.store.catalog.base.Catalog.shelf`."""
        return self._call("shelf", self.inner.shelf, workflow)

    def workflows(self) -> list[str]:
        """See `perdure.store.catalog.base.Catalog.workflows`."""
        return self._call("workflows", self.inner.workflows)

    def register(
        self, release: Release, definitions: Sequence[Definition], decide: Decide, *, at: int, actor: str, reason: str,
        commit: str | None = None, aliases: Mapping[str, Collection[Identity]] | None = None,
    ) -> list[Registered]:  # fmt: skip
        """See `perdure.store.catalog.base.Catalog.register`."""
        return self._call(
            "register_versions", self.inner.register, release, definitions, decide, at=at, actor=actor, reason=reason,
            commit=commit, aliases=aliases,
        )  # fmt: skip

    def set_status(
        self, workflow: str, version_id: int, status: VersionStatus, *, at: int, actor: str, reason: str
    ) -> bool:
        """See `perdure.store.catalog.base.Catalog.set_status`."""
        return self._call(
            "set_status", self.inner.set_status, workflow, version_id, status, at=at, actor=actor, reason=reason
        )

    def set_route(self, workflow: str, channel: str, revise: Revise, *, at: int, actor: str, reason: str) -> Route:
        """See `perdure.store.catalog.base.Catalog.set_route`."""
        return self._call(
            "set_route", self.inner.set_route, workflow, channel, revise, at=at, actor=actor, reason=reason
        )

    def note(
        self, workflow: str, version_id: int, action: Action, detail: Mapping[str, Any], *, at: int, actor: str,
        reason: str,
    ) -> None:  # fmt: skip
        """See `perdure.store.catalog.base.Catalog.note`."""
        self._call("note", self.inner.note, workflow, version_id, action, detail, at=at, actor=actor, reason=reason)

    def log(self, workflow: str, *, since: int | None = None, limit: int = 100) -> list[CatalogChange]:
        """See `perdure.store.catalog.base.Catalog.log`."""
        return self._call("version_log", self.inner.log, workflow, since=since, limit=limit)

    def definition(self, version_id: int) -> StoredDefinition | None:
        """See `perdure.store.catalog.base.Catalog.definition`."""
        return self._call("definition", self.inner.definition, version_id)

    def release(self, release_id: int) -> StoredRelease | None:
        """See `perdure.store.catalog.base.Catalog.release`."""
        return self._call("release", self.inner.release, release_id)

    def hosted(self, release_id: int) -> HostedRelease | None:
        """Return what a version host of a release must know."""
        return self._call("release", self.inner.hosted, release_id)

    def demand(self, queues: Sequence[str], now: int) -> Demand:
        """Return what code due runs of these queues need, and who has it."""
        return self._call("demand", self.inner.demand, queues, now)

    def usage(self, statuses: Collection[str] = ()) -> list[VersionUsage]:
        """See `perdure.store.catalog.base.Catalog.usage`."""
        return self._call("version_usage", self.inner.usage, statuses)

    def collect(self, *, keep: int, closed_before: int, unused_before: int, at: int, actor: str, reason: str,
                dry_run: bool = False) -> Collected:  # fmt: skip
        """See `perdure.store.catalog.base.Catalog.collect`."""
        return self._call(
            "collect", self.inner.collect, keep=keep, closed_before=closed_before, unused_before=unused_before, at=at,
            actor=actor, reason=reason, dry_run=dry_run,
        )  # fmt: skip
