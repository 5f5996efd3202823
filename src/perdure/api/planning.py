"""Which runs a plan of upgrades is about: a list of ids, from the start or found by workflow and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.api.reading import find
from perdure.errors import RunNotFound, UnknownVersion, UsageError
from perdure.model.filter import RunFilter
from perdure.model.run import RunRow
from perdure.model.status import LIVE, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.api.checking import Checker, Target
    from perdure.runtime.connection import Connection
    from perdure.version.known import Known

_PAGE: Final = 500
_SHORTEST_HASH: Final = 8
MOST_RUNS: Final = 10_000


class Selector(NamedTuple):
    """How runs are chosen."""

    ids: tuple[str, ...] = ()
    workflow: str | None = None
    from_version: str | None = None
    statuses: tuple[str, ...] = ()
    limit: int = MOST_RUNS

    @staticmethod
    def of(
        ids: Iterable[str] | None, workflow: Any, from_version: str | None, status: str | Iterable[str] | None,
        limit: int,
    ) -> Selector:  # fmt: skip
        """Return what was asked for.

        Raises:
            UsageError: it names neither runs, nor a workflow and a version.
        """
        if type(limit) is not int or not 1 <= limit <= MOST_RUNS:
            message = f"limit must be a whole number from 1 to {MOST_RUNS}, not {limit!r}"
            raise UsageError(message)
        if ids is not None:
            given = tuple(dict.fromkeys([ids] if isinstance(ids, str) else ids))
            if not given or workflow is not None or from_version is not None or status is not None:
                message = "a plan names either the ids of runs, or a workflow and the version they are bound to"
                raise UsageError(message)
            return Selector(given)
        if workflow is None or from_version is None:
            message = "a plan names the ids of runs, or at least a workflow and the version they are bound to"
            raise UsageError(message, hint="there is no plan for all runs")
        named = [status] if isinstance(status, str) else status or sorted(LIVE)
        statuses = tuple(Status(one).value for one in named)
        return Selector((), getattr(workflow, "name", workflow), from_version, statuses, limit)

    @property
    def text(self) -> str:
        """It as a JSON object."""
        facts = {"ids": self.ids} if self.ids else {
            "workflow": self.workflow, "from": self.from_version, "status": self.statuses, "limit": self.limit
        }  # fmt: skip
        return msgspec.json.encode(facts).decode()


async def select(connection: Connection, checker: Checker, selector: Selector, to: str) -> tuple[Target, list[str]]:
    """Return the version that is meant, and the ids of the runs.

    Raises:
        UsageError: runs of several workflows, or one that cannot be upgraded.
        RunNotFound: there is no such run.
        UnknownVersion, VersionClosed, VersionPurged: the version takes no runs.
    """
    if not selector.ids:
        assert selector.workflow is not None  # noqa: S101 - the selector has seen to it
        target = await checker.target(connection, selector.workflow, to)
        return target, await _found(connection, selector, target)
    rows = [await _row(connection, run_id) for run_id in selector.ids]
    workflows = sorted({row.workflow for row in rows})
    if len(workflows) > 1:
        message = f"a plan is about runs of one workflow, not of {' and '.join(workflows)}"
        raise UsageError(message)
    target = await checker.target(connection, workflows[0], to)
    for row in rows:
        status = Status(row.status)
        if status.is_terminal and status is not Status.FAILED:
            message = f"run {row.id!r} is {status}; what has ended is not upgraded"
            raise UsageError(message, run_id=row.id, hint="perdure fork makes a new run of its history")
        if row.version_id == target.version_id:
            message = f"run {row.id!r} is bound to {target.workflow}@{target.label} already"
            raise UsageError(message, run_id=row.id)
    return target, list(selector.ids)


async def _row(connection: Connection, run_id: str) -> RunRow:
    row = await find(connection, run_id)
    if not isinstance(row, RunRow):
        raise RunNotFound(run_id, f"the history of run {run_id!r} was purged")
    return row


async def _found(connection: Connection, selector: Selector, target: Target) -> list[str]:
    shelf = await connection.read(connection.store.catalog.shelf, target.workflow)
    wanted = source_of(shelf.known, selector.from_version or "")
    if wanted == target.version_id:
        message = f"{target.workflow}@{selector.from_version} is the version to upgrade to"
        raise UsageError(message)
    ids: list[str] = []
    query = RunFilter(selector.statuses, selector.workflow, limit=_PAGE)
    while True:
        rows = await connection.read(connection.store.list, query)
        ids += [row.id for row in rows if row.version_id == wanted]
        if len(rows) < _PAGE or len(ids) >= selector.limit:
            return ids[: selector.limit]
        query = query._replace(before=(rows[-1].created_at, rows[-1].id))


def source_of(known: Known, requested: str) -> int:
    """Return the version that runs are bound to, whatever its status, by label or beginning of a hash.

    Raises:
        UnknownVersion: nothing, or more than one version, is meant by it.
    """
    labels = [label.version_id for label in known.labels if label.text == requested]
    hashes = [one.id for one in known.versions.values() if one.sha256.startswith(requested)]
    found = labels or (hashes if len(requested) >= _SHORTEST_HASH else [])
    if len(found) != 1:
        texts = ", ".join(label.text for label in known.labels[:10]) or "none"
        raise UnknownVersion(f"{known.workflow} has no version {requested}. Known: {texts}.")
    return found[0]
