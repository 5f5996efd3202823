"""`perdure.store.catalog.base.Catalog` in plain dictionaries and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import BlobsMissing
from perdure.store.catalog.base import Collected, HostedRelease, Identity, Shelf, VersionUsage
from perdure.store.catalog.changes import action_of, check_noted, checked, next_route
from perdure.store.catalog.demand import Demand, demand_of
from perdure.store.catalog.garbage import Held, purgeable, unneeded
from perdure.store.catalog.plans import MemoryPlans
from perdure.store.catalog.registration import Ends, Registration, Request, Situation, Stamp
from perdure.store.catalog.rows import (
    AliasRow,
    ChangeRow,
    LabelRow,
    ReleaseRow,
    RouteRow,
    VersionRow,
    change_of,
    detail_text,
    elsewhere,
    environments,
    known_label,
    known_version,
    manifest_of,
    route_detail,
    route_of,
    route_row,
    status_change,
    stored_definition,
    stored_release,
)
from perdure.version.known import Known, KnownVersion
from perdure.version.scan import decode

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from perdure.model.run import RunRow, WorkerRow
    from perdure.store.catalog.base import (
        Action,
        CatalogChange,
        Decide,
        Registered,
        Revise,
        StoredDefinition,
        StoredRelease,
    )
    from perdure.version.definition import Definition
    from perdure.version.known import VersionStatus
    from perdure.version.manifest import Blob
    from perdure.version.route import Route
    from perdure.version.scan import Scan
    from perdure.version.survey import Release


class MemoryBlobs:
    """`perdure.store.catalog.base.Blobs` in a dictionary.

    Args:
        check: refuses use of a store that is not open.
        lock: of the store.
        now: the store's clock.
        runs: gives the rows of all runs.
    """

    def __init__(
        self,
        check: Callable[[], None],
        lock: threading.RLock,
        now: Callable[[], int],
        runs: Callable[[], Iterable[RunRow]],
    ) -> None:
        self._check = check
        self._lock = lock
        self._now = now
        self._runs = runs
        self._blobs: dict[str, tuple[Blob, int]] = {}

    def scans(self, sha256s: Collection[str]) -> dict[str, Scan]:
        """Return what is kept of these contents as source."""
        kept = {blob.sha256: decode(blob.scan) for blob in self.blobs(sha256s) if blob.scan is not None}
        return {sha256: scan for sha256, scan in kept.items() if scan is not None}

    def missing(self, sha256s: Collection[str]) -> list[str]:
        """Return those that are not there."""
        self._check()
        with self._lock:
            return [sha256 for sha256 in dict.fromkeys(sha256s) if sha256 not in self._blobs]

    def add_blobs(self, blobs: Iterable[Blob]) -> None:
        """Add contents."""
        self._check()
        with self._lock:
            for blob in blobs:
                self._blobs.setdefault(blob.sha256, (blob, self._now()))

    def blobs(self, sha256s: Collection[str]) -> list[Blob]:
        """Return those of these contents that are there."""
        self._check()
        with self._lock:
            return [self._blobs[sha256][0] for sha256 in dict.fromkeys(sha256s) if sha256 in self._blobs]


class MemoryCatalog(MemoryBlobs, MemoryPlans):
    """See the module."""

    def __init__(
        self,
        check: Callable[[], None],
        lock: threading.RLock,
        now: Callable[[], int],
        runs: Callable[[], Iterable[RunRow]],
        workers: Callable[[], Iterable[WorkerRow]],
    ) -> None:
        MemoryBlobs.__init__(self, check, lock, now, runs)
        MemoryPlans.__init__(self)
        self._workers = workers
        self._count = 0
        self._releases: list[ReleaseRow] = []
        self._versions: list[VersionRow] = []
        self._labels: list[LabelRow] = []
        self._aliases: list[AliasRow] = []
        self._changes: list[ChangeRow] = []
        self._routes: dict[str, dict[str, list[RouteRow]]] = {}

    def count(self) -> int:
        """Return how many changes there were so far."""
        self._check()
        return self._count

    def shelf(self, workflow: str) -> Shelf:
        """Return what is known of a workflow."""
        self._check()
        with self._lock:
            routes = {channel: route for channel, route in self._routes_of(workflow).items() if route.arms}
            return Shelf(self._count, self._known(workflow), routes)

    def workflows(self) -> list[str]:
        """Return the names of the workflows that have versions."""
        self._check()
        with self._lock:
            return sorted({row.workflow for row in self._versions})

    def _known(self, workflow: str) -> Known:
        versions = [
            known_version(row.id, row.sha256, row.status, *self._status_change(row))
            for row in self._versions
            if row.workflow == workflow
        ]
        labels = [known_label(row) for row in self._labels if row.workflow == workflow]
        return Known(workflow, versions, labels)

    def _status_change(self, row: VersionRow) -> tuple[int, str, str] | tuple[None, None, None]:
        if row.status_n is None:
            return None, None, None
        change = self._changes[row.status_n - 1]
        return change.at, change.actor, change.reason

    def _routes_of(self, workflow: str) -> dict[str, Route]:
        """Return the last revision of each route, those that were cleared among them."""
        found = self._routes.get(workflow, {})
        last = [revisions[-1] for _, revisions in sorted(found.items())]
        return {row.channel: route_of(row.channel, row.revision, row.arms, row.salt) for row in last}

    # ---- changes ----

    def register(
        self, release: Release, definitions: Sequence[Definition], decide: Decide, *, at: int, actor: str, reason: str,
        commit: str | None = None, aliases: Mapping[str, Collection[Identity]] | None = None,
    ) -> list[Registered]:  # fmt: skip
        """Make the versions of a release known."""
        self._check()
        request = Request(release, definitions, decide, Stamp(at, actor, reason), commit, aliases or {})
        with self._lock:
            made = Registration(request, self._situation(request), lambda number: self._content(number).definition)
            missing = self.missing([file.sha256 for file in release.manifest.values()]) if made.needs_files else []
            if missing:
                raise BlobsMissing(missing)
            self._releases += [made.release] if made.release is not None else []
            self._versions += made.versions
            self._labels += made.labels
            self._aliases += made.aliases
            self._changes += made.changes
            for number in made.refilled:
                self._versions[number - 1] = self._versions[number - 1]._replace(release_id=made.release_id)
            self._count += bool(made.changes)
            return made.registered

    def _situation(self, request: Request) -> Situation:
        return Situation(
            {workflow: self._known(workflow) for workflow in request.workflows},
            {
                (Identity(row.scheme, row.sha256), self._versions[row.version_id - 1].workflow): row.version_id
                for row in self._aliases
            },
            next((row for row in self._releases if row.tree_sha256 == request.release.tree_sha256), None),
            Ends(len(self._releases), len(self._versions), len(self._labels), len(self._changes)),
        )

    def _content(self, version_id: int) -> StoredDefinition:
        row = self._versions[version_id - 1]
        labels = [known_label(label) for label in self._labels if label.version_id == version_id]
        dependencies = self._releases[row.release_id - 1].dependencies
        return stored_definition(row, dependencies, tuple(labels), status_change(*self._status_change(row)))

    def _add_change(
        self, workflow: str, version_id: int | None, action: Action, detail: Mapping[str, Any], stamp: Stamp
    ) -> int:
        n = len(self._changes) + 1
        at, actor, reason = stamp
        self._changes.append(ChangeRow(n, workflow, version_id, at, actor, action, reason, detail_text(detail)))
        return n

    def _set_status(self, version_id: int, action: Action, status: VersionStatus, stamp: Stamp) -> None:
        row = self._versions[version_id - 1]
        n = self._add_change(row.workflow, version_id, action, {"from": row.status}, stamp)
        self._versions[version_id - 1] = row._replace(status=status, status_n=n)

    def set_status(
        self, workflow: str, version_id: int, status: VersionStatus, *, at: int, actor: str, reason: str
    ) -> bool:
        """Change whether a version takes new runs."""
        self._check()
        with self._lock:
            known, routes = self._known(workflow), self._routes_of(workflow).values()
            action = action_of(known, routes, version_id, status, lambda: self._is_whole(version_id))
            if action is not None:
                self._set_status(version_id, action, status, Stamp(at, actor, reason))
                self._count += 1
            return action is not None

    def _is_whole(self, version_id: int) -> bool:
        manifest = manifest_of(self._releases[self._versions[version_id - 1].release_id - 1].manifest)
        return not self.missing([file.sha256 for file in manifest.values()])

    def set_route(self, workflow: str, channel: str, revise: Revise, *, at: int, actor: str, reason: str) -> Route:
        """Add the next revision of a route."""
        self._check()
        with self._lock:
            before = self._routes_of(workflow).get(channel)
            route, is_new = next_route(self._known(workflow), before, channel, revise)
            if is_new:
                row = route_row(workflow, route, at, actor, reason)
                self._routes.setdefault(workflow, {}).setdefault(channel, []).append(row)
                self._add_change(workflow, None, "route_set", route_detail(route), Stamp(at, actor, reason))
                self._count += 1
            return route

    def note(
        self, workflow: str, version_id: int, action: Action, detail: Mapping[str, Any], *, at: int, actor: str,
        reason: str,
    ) -> None:  # fmt: skip
        """Record something that happened to a version."""
        self._check()
        check_noted(action)
        with self._lock:
            checked(self._known(workflow), version_id)
            self._add_change(workflow, version_id, action, detail, Stamp(at, actor, reason))

    # ---- reads ----

    def log(self, workflow: str, *, since: int | None = None, limit: int = 100) -> list[CatalogChange]:
        """Return the record of a workflow, newest first."""
        self._check()
        with self._lock:
            rows = [
                row for row in reversed(self._changes)
                if row.workflow == workflow and (since is None or row.at >= since)
            ]  # fmt: skip
            return [change_of(row) for row in rows[: max(limit, 0)]]

    def definition(self, version_id: int) -> StoredDefinition | None:
        """Return a version with its content."""
        self._check()
        with self._lock:
            return self._content(version_id) if 0 < version_id <= len(self._versions) else None

    def release(self, release_id: int) -> StoredRelease | None:
        """Return a release."""
        self._check()
        with self._lock:
            is_there = 0 < release_id <= len(self._releases)
            return stored_release(self._releases[release_id - 1]) if is_there else None

    def hosted(self, release_id: int) -> HostedRelease | None:
        """Return what a version host of a release must know."""
        stored = self.release(release_id)
        if stored is None:
            return None
        ids = [row.id for row in self._versions if row.release_id == release_id and row.status != "purged"]
        others = [
            (one.id, one.roots, row.workflow, next(label.label for label in self._labels if label.version_id == row.id))
            for one in self._releases
            for row in self._versions
            if row.release_id == one.id
        ]
        found = tuple(one for version_id in ids if (one := self.definition(version_id)) is not None)
        of_release = {row.id for row in self._versions if row.release_id == release_id}
        set_ = [
            (row.version_id, row.detail)
            for row in self._changes
            if row.action == "host_env_set" and row.version_id in of_release
        ]
        return HostedRelease(stored, found, elsewhere(stored, others), environments(set_))

    def demand(self, queues: Sequence[str], now: int) -> Demand:
        """Return what code due runs of these queues need, and who has it."""
        self._check()
        with self._lock:
            return demand_of(self._runs(), self._workers(), queues, now)

    def usage(self, statuses: Collection[str] = ()) -> list[VersionUsage]:
        """Count the runs of each version, by state."""
        self._check()
        created: dict[tuple[int, str], list[int]] = {}
        with self._lock:
            for row in self._runs():
                if not statuses or row.status in statuses:
                    created.setdefault((row.version_id, row.status), []).append(row.created_at)
        return [VersionUsage(*key, len(times), min(times)) for key, times in sorted(created.items())]

    # ---- garbage ----

    def collect(self, *, keep: int, closed_before: int, unused_before: int, at: int, actor: str, reason: str,
                dry_run: bool = False) -> Collected:  # fmt: skip
        """Purge closed versions that nothing needs, and delete the contents that no version needs any more."""
        self._check()
        with self._lock:
            held = [
                Held(row.workflow, row.id, row.sha256, row.status, self._status_change(row)[0], row.release_id)
                for row in self._versions
            ]
            used = {row.version_id for row in self._runs()}
            gone = purgeable(held, used, keep=keep, closed_before=closed_before)
            ids = {one.id for one in gone}
            left = {one.release_id for one in held if one.status != "purged" and one.id not in ids}
            contents = [(blob.sha256, len(blob.data), added_at) for blob, added_at in self._blobs.values()]
            manifests = (row.manifest for row in self._releases if row.id in left)
            unused = unneeded(contents, manifests, unused_before)
            if not dry_run:
                for one in gone:
                    self._set_status(one.id, "purged", "purged", Stamp(at, actor, reason))
                self._count += bool(gone)
                for sha256, _ in unused:
                    del self._blobs[sha256]
        purged = tuple(KnownVersion(one.id, one.sha256, "purged") for one in gone)
        return Collected(purged, len(unused), sum(size for _, size in unused))
