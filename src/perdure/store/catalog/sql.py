"""`perdure.store.catalog.base.Catalog` by named statements, on any database.

INV-1  Every change first takes the one lock that there is, and reads only then what it decides on.
INV-2  What is read in several statements is of one moment: the count is read before and after, and again if it moved.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from perdure.errors import BlobsMissing
from perdure.store.catalog.base import Collected, HostedRelease, Identity, Shelf, VersionUsage
from perdure.store.catalog.blobs import SqlBlobs, lacking, pieces, running
from perdure.store.catalog.changes import action_of, check_noted, checked, next_route
from perdure.store.catalog.demand import Demand, demand
from perdure.store.catalog.garbage import Held, purgeable, unneeded
from perdure.store.catalog.plans import SqlPlans
from perdure.store.catalog.registration import Ends, Registration, Request, Situation, Stamp
from perdure.store.catalog.rows import (
    ChangeRow,
    ReleaseRow,
    VersionRow,
    change_of,
    definition_of,
    detail_text,
    elsewhere,
    environments,
    known_version,
    manifest_of,
    route_detail,
    route_of,
    route_row,
    status_change,
    stored_definition,
    stored_release,
)
from perdure.version.known import Known, KnownLabel, KnownVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from perdure.store.catalog.base import (
        Action,
        CatalogChange,
        Decide,
        Registered,
        Revise,
        StoredDefinition,
        StoredRelease,
    )
    from perdure.store.catalog.ground import Rows, Run
    from perdure.version.definition import Definition
    from perdure.version.known import VersionStatus
    from perdure.version.route import Route
    from perdure.version.survey import Release

_LOCK = ("lock_catalog",)
_COUNT = ("version_count",)
_BUMP = ("bump_versions",)
_MOST_DELETED = 1_000


class SqlCatalog(SqlBlobs, SqlPlans):
    """See the module."""

    def count(self) -> int:
        """Return how many changes there were so far."""
        return int(self._ground.read(running([_COUNT]))[0][0][0])

    def shelf(self, workflow: str) -> Shelf:
        """Return what is known of a workflow."""

        def look(run: Run) -> Shelf | None:
            before, versions, labels, routes, after = run(_COUNT, *_shelf_calls((workflow,)), _COUNT)
            if before != after:
                return None
            known = _known((workflow,), versions, labels)[workflow]
            return Shelf(
                int(before[0][0]), known, {name: route for name, route in _routes(routes).items() if route.arms}
            )

        while True:
            found = self._ground.read(look)
            if found is not None:
                return found

    def workflows(self) -> list[str]:
        """Return the names of the workflows that have versions."""
        return [row[0] for row in self._ground.read(running([("catalog_workflows",)]))[0]]

    # ---- registration ----

    def register(
        self, release: Release, definitions: Sequence[Definition], decide: Decide, *, at: int, actor: str, reason: str,
        commit: str | None = None, aliases: Mapping[str, Collection[Identity]] | None = None,
    ) -> list[Registered]:  # fmt: skip
        """Make the versions of a release known."""
        request = Request(release, definitions, decide, Stamp(at, actor, reason), commit, aliases or {})
        if not definitions:
            return []

        def look(run: Run) -> Registration | None:
            before, *rows, after = run(_COUNT, *_situation_calls(request), _COUNT)
            return _registration(run, request, rows) if before == after else None

        found = None
        while found is None:
            found = self._ground.read(look)
        if found.is_nothing:
            return found.registered  # the usual case: nobody needs the lock

        def change(run: Run) -> list[Registered]:
            _, *rows = run(_LOCK, *_situation_calls(request))
            made = _registration(run, request, rows)
            if made.needs_files and (missing := _missing(run, release)):
                raise BlobsMissing(missing)
            if not made.is_nothing:
                run(*_additions(made))
            return made.registered

        return self._ground.write(change)

    # ---- changes ----

    def set_status(
        self, workflow: str, version_id: int, status: VersionStatus, *, at: int, actor: str, reason: str
    ) -> bool:
        """Change whether a version takes new runs."""

        def change(run: Run) -> bool:
            known, routes, ends = _locked(run, workflow)
            action = action_of(known, routes.values(), version_id, status, lambda: _is_whole(run, version_id))
            if action is None:
                return False
            before = known.versions[version_id].status
            n = ends.change + 1
            row = ChangeRow(n, workflow, version_id, at, actor, action, reason, detail_text({"from": before}))
            run(("add_change", *row), ("change_status", status, n, version_id), _BUMP)
            return True

        return self._ground.write(change)

    def set_route(self, workflow: str, channel: str, revise: Revise, *, at: int, actor: str, reason: str) -> Route:
        """Add the next revision of a route."""

        def change(run: Run) -> Route:
            known, routes, ends = _locked(run, workflow)
            route, is_new = next_route(known, routes.get(channel), channel, revise)
            if is_new:
                detail = detail_text(route_detail(route))
                row = ChangeRow(ends.change + 1, workflow, None, at, actor, "route_set", reason, detail)
                run(("add_route", *route_row(workflow, route, at, actor, reason)), ("add_change", *row), _BUMP)
            return route

        return self._ground.write(change)

    def note(
        self, workflow: str, version_id: int, action: Action, detail: Mapping[str, Any], *, at: int, actor: str,
        reason: str,
    ) -> None:  # fmt: skip
        """Record something that happened to a version."""
        check_noted(action)

        def change(run: Run) -> None:
            known, _, ends = _locked(run, workflow)
            checked(known, version_id)
            row = ChangeRow(ends.change + 1, workflow, version_id, at, actor, action, reason, detail_text(detail))
            run(("add_change", *row))

        self._ground.write(change)

    # ---- reads ----

    def log(self, workflow: str, *, since: int | None = None, limit: int = 100) -> list[CatalogChange]:
        """Return the record of a workflow, newest first."""
        call = ("read_changes", workflow, -(2**63) if since is None else since, max(limit, 0))
        return [change_of(ChangeRow._make(row)) for row in self._ground.read(running([call]))[0]]

    def definition(self, version_id: int) -> StoredDefinition | None:
        """Return a version with its content."""

        def look(run: Run) -> StoredDefinition | None:
            found, labels = run(("read_definition", version_id), ("labels_of_version", version_id))
            if not found:
                return None
            *columns, dependencies, at, actor, reason = found[0]
            named = tuple(KnownLabel._make(row) for row in labels)
            changed = status_change(at, actor, reason)
            return stored_definition(VersionRow._make(columns), dependencies, named, changed)

        return self._ground.read(look)

    def release(self, release_id: int) -> StoredRelease | None:
        """Return a release."""
        (found,) = self._ground.read(running([("read_release", release_id)]))
        return stored_release(ReleaseRow._make(found[0])) if found else None

    def hosted(self, release_id: int) -> HostedRelease | None:
        """Return what a version host of a release must know."""
        stored = self.release(release_id)
        if stored is None:
            return None
        calls = [("release_versions", release_id), ("other_roots",), ("host_environments", release_id)]
        ids, others, set_ = self._ground.read(running(calls))
        found = tuple(one for (version_id,) in ids if (one := self.definition(version_id)) is not None)
        return HostedRelease(stored, found, elsewhere(stored, others), environments(set_))

    def demand(self, queues: Sequence[str], now: int) -> Demand:
        """Return what code due runs of these queues need, and who has it."""
        return self._ground.read(lambda run: demand(run, queues, now))

    def usage(self, statuses: Collection[str] = ()) -> list[VersionUsage]:
        """Count the runs of each version, by state."""
        call = ("version_usage_of", tuple(statuses)) if statuses else ("version_usage",)
        return [VersionUsage._make(row) for row in self._ground.read(running([call]))[0]]

    # ---- garbage ----

    def collect(self, *, keep: int, closed_before: int, unused_before: int, at: int, actor: str, reason: str,
                dry_run: bool = False) -> Collected:  # fmt: skip
        """Purge closed versions that nothing needs, and delete the contents that no version needs any more."""

        def change(run: Run) -> Collected:
            _, versions, ends = run(_LOCK, ("all_versions",), ("catalog_ends",))
            held = [Held._make(row) for row in versions]
            used: set[int] = set()
            if purgeable(held, used, keep=keep, closed_before=closed_before):  # else no need to look at every run
                used = {row[0] for row in run(("used_versions",))[0]}
            gone = purgeable(held, used, keep=keep, closed_before=closed_before)
            ids = {version.id for version in gone}
            left = {one.release_id for one in held if one.status != "purged" and one.id not in ids}
            contents, manifests = run(("all_blobs",), ("all_manifests",))
            unused = unneeded(contents, (text for number, text in manifests if number in left), unused_before)
            if not dry_run:
                _purge(run, gone, _ends(ends).change, Stamp(at, actor, reason))
                for part in pieces(unused, _MOST_DELETED):
                    run(("delete_blobs", tuple(sha256 for sha256, _ in part)))
            purged = tuple(KnownVersion(one.id, one.sha256, "purged") for one in gone)
            return Collected(purged, len(unused), sum(size for _, size in unused))

        return self._ground.write(change)


def _purge(run: Run, versions: Sequence[Held], last: int, stamp: Stamp) -> None:
    calls: list[tuple[Any, ...]] = []
    for n, version in enumerate(versions, start=last + 1):
        row = ChangeRow(
            n,
            version.workflow,
            version.id,
            stamp.at,
            stamp.actor,
            "purged",
            stamp.reason,
            detail_text({"from": "closed"}),
        )
        calls += [("add_change", *row), ("change_status", "purged", n, version.id)]
    if calls:
        run(*calls, _BUMP)


def _shelf_calls(workflows: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [("version_heads", workflows), ("version_labels", workflows), ("version_routes", workflows)]


def _known(workflows: Sequence[str], versions: Rows, labels: Rows) -> dict[str, Known]:
    """Return what is known of each workflow from the rows of all."""
    heads: defaultdict[str, list[KnownVersion]] = defaultdict(list)
    for workflow, *columns in versions:
        heads[workflow].append(known_version(*columns))
    texts: defaultdict[str, list[KnownLabel]] = defaultdict(list)
    for workflow, *columns in labels:
        texts[workflow].append(KnownLabel._make(columns))
    return {workflow: Known(workflow, heads[workflow], texts[workflow]) for workflow in workflows}


def _routes(rows: Rows) -> dict[str, Route]:
    return {channel: route_of(channel, *columns) for channel, *columns in rows}


def _ends(rows: Rows) -> Ends:
    return Ends._make(int(value) for value in rows[0])


def _locked(run: Run, workflow: str) -> tuple[Known, dict[str, Route], Ends]:
    """Take the lock, and return what is known of a workflow then."""
    _, versions, labels, routes, ends = run(_LOCK, *_shelf_calls((workflow,)), ("catalog_ends",))
    return _known((workflow,), versions, labels)[workflow], _routes(routes), _ends(ends)


def _situation_calls(request: Request) -> list[tuple[Any, ...]]:
    workflows = request.workflows
    return [
        ("version_heads", workflows),
        ("version_labels", workflows),
        ("alias_versions", request.hashes, workflows),
        ("release_by_tree", request.release.tree_sha256),
        ("catalog_ends",),
    ]


def _registration(run: Run, request: Request, rows: Sequence[Rows]) -> Registration:
    """Return what a registration comes to, from what `_situation_calls` gave."""
    versions, labels, aliases, releases, ends = rows
    known = _known(request.workflows, versions, labels)
    there = Situation(
        known,
        {(Identity(scheme, sha256), workflow): number for scheme, sha256, workflow, number in aliases},
        ReleaseRow._make(releases[0]) if releases else None,
        _ends(ends),
    )

    def content(version_id: int) -> Definition:
        *columns, dependencies, _, _, _ = run(("read_definition", version_id))[0][0]
        return definition_of(VersionRow._make(columns), dependencies)

    return Registration(request, there, content)


def _is_whole(run: Run, version_id: int) -> bool:
    """Whether all files of a version are there."""
    manifest = manifest_of(run(("manifest_of_version", version_id))[0][0][0])
    return not lacking(run, [file.sha256 for file in manifest.values()])


def _missing(run: Run, release: Release) -> list[str]:
    return lacking(run, [file.sha256 for file in release.manifest.values()])


def _additions(made: Registration) -> list[tuple[Any, ...]]:
    """Return what adds the rows of a registration."""
    calls: list[tuple[Any, ...]] = []
    if made.release is not None:
        calls.append(("add_release", *made.release))
    for name, rows in (
        ("add_version", made.versions),
        ("add_label", made.labels),
        ("add_alias", made.aliases),
        ("add_change", made.changes),
    ):
        calls += [(name, *row) for row in rows]
    calls += [("refill_version", made.release_id, version_id) for version_id in made.refilled]
    if made.changes:
        calls.append(_BUMP)
    return calls
