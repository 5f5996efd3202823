"""Checks runs of a database against the code that is registered here, or against a version that is stored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from perdure.api.reading import row_and_log
from perdure.codec.base import open_chain
from perdure.errors import InvalidValue, UnknownVersion, UsageError
from perdure.replay.code import place_of
from perdure.replay.here import check_here
from perdure.replay.history import record
from perdure.replay.pool import Pool
from perdure.store.thread import StoreThread
from perdure.version.resolution import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.codec.base import Chain
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.replay.history import History
    from perdure.replay.verdict import Verdict
    from perdure.runtime.connection import Connection
    from perdure.runtime.hosts.plan import Plan
    from perdure.runtime.registry import WorkflowRegistry


MOST_PROCESSES: Final = 16
_MOST_VERSIONS: Final = 4
"""Stored versions that processes are kept for."""


class Target(NamedTuple):
    """A stored version.

    Attributes:
        workflow: name of the workflow.
        version_id: the version.
        label: what it goes by.
        version_count: the count of changes of versions it was found at.
    """

    workflow: str
    version_id: int
    label: str
    version_count: int


class Checker:
    """What an engine checks with. Its processes are started by the first check and end with the engine.

    Args:
        workflows: the code.
        codec: how values are stored.
        options: options of the codec that encodes them.
        plan: returns how a process is told to load a stored version; None where no other process sees the database.
    """

    def __init__(
        self, workflows: WorkflowRegistry, codec: Chain, options: Mapping[str, Any],
        plan: Callable[[], Plan | None],
    ) -> None:  # fmt: skip
        self._workflows = workflows
        self._codec = codec
        self._options = dict(options)
        self._plan = plan
        self._thread = StoreThread("perdure-check")
        self._pools: dict[int, tuple[frozenset[str], Pool]] = {}
        self._stored: dict[tuple[int, int], Pool] = {}

    async def check(self, connection: Connection, run_id: str, to: str | None, processes: int) -> Verdict:
        """Check one run; see `perdure.Engine.check`."""
        if type(processes) is not int or not 0 <= processes <= MOST_PROCESSES:
            message = f"processes must be a whole number from 0 to {MOST_PROCESSES}, not {processes!r}"
            raise InvalidValue(message)
        row, events = await row_and_log(connection, run_id)
        history = record(row, events, self._codec)
        target = None if to is None else await self._target(connection, row.workflow, to)
        if target is not None:
            return await self.check_stored(connection, history, target, processes)
        workflow = self._code(history)
        if processes == 0:
            name = self._codec.codec.name
            codec = open_chain((name,), {name: self._options})
            return await self._called(connection, check_here, history, workflow, codec)
        return await self._called(connection, self._pool(workflow, processes).check, history)

    async def _called(self, connection: Connection, function: Callable[..., Verdict], *args: Any) -> Verdict:
        loop = connection.loop
        assert loop is not None  # noqa: S101 - it was read from just now
        verdict: Verdict = await self._thread.call(loop, function, *args)
        return verdict

    # -- stored versions -----------------------------------------------------------------------------------------

    async def target(self, connection: Connection, workflow: str, to: str) -> Target:
        """Return the stored version that is meant.

        Raises:
            UnknownVersion, VersionClosed, VersionPurged: see `resolve`.
            InvalidValue: it begins like a range and is none.
        """
        shelf = await connection.read(connection.store.catalog.shelf, workflow)
        label = resolve(shelf.known, to)
        return Target(workflow, label.version_id, label.text, shelf.count)

    async def target_of(self, connection: Connection, workflow: str, version_id: int) -> Target:
        """Return a stored version by its number.

        Raises:
            VersionClosed, VersionPurged: see `resolve`.
        """
        shelf = await connection.read(connection.store.catalog.shelf, workflow)
        return await self.target(connection, workflow, shelf.known.versions[version_id].sha256)

    async def _target(self, connection: Connection, workflow: str, to: str) -> Target | None:
        """Return the stored version that is meant; None for the code that is here and that nobody has registered."""
        try:
            return await self.target(connection, workflow, to)
        except UnknownVersion:
            here = self._workflows.get(workflow)
            if here is None or here.version != to:
                raise
            return None

    async def check_stored(
        self, connection: Connection, history: History, target: Target, processes: int = 2
    ) -> Verdict:  # fmt: skip
        """Check a history against a stored version.

        Raises:
            UsageError: no other process can read this database.
            SignatureInvalid: the version is not signed, and has to be.
            VersionLoadFailed: the version cannot be loaded.
        """
        key = max(processes, 1), target.version_id
        pool = self._stored.pop(key, None)
        if pool is None:
            pool = await self._open(connection, target, key[0])
        self._stored[key] = pool  # as the last to be given up
        while len(self._stored) > _MOST_VERSIONS:
            self._stored.pop(next(iter(self._stored))).close()
        return await self._called(connection, pool.check, replace(history, version=target.label))

    async def _open(self, connection: Connection, target: Target, processes: int) -> Pool:
        catalog = connection.store.catalog
        definition = await connection.read(catalog.definition, target.version_id)
        hosted = None if definition is None else await connection.read(catalog.hosted, definition.release_id)
        plan = self._plan()
        if definition is None or hosted is None or plan is None:
            message = f"{target.workflow}@{target.label} cannot be loaded: no other process can read this database"
            raise UsageError(message)
        job = plan.job(hosted, "", [definition], "")
        if target.version_id in job.refused:
            raise job.refused[target.version_id].error()
        job = replace(job, settings={})
        return Pool(job, codec=self._codec.codec.name, options=self._options, processes=processes)

    # -- code that is here ---------------------------------------------------------------------------------------

    def _code(self, history: History) -> WorkflowDefinition:
        workflow = self._workflows.get(history.workflow)
        if workflow is None:
            message = f"run {history.run_id!r} is of workflow {history.workflow!r}, whose code is not here"
            raise UsageError(message, hint="give the engine the workflow, or the module it is in; or name a version")
        return workflow

    def _pool(self, workflow: WorkflowDefinition, processes: int) -> Pool:
        known, pool = self._pools.get(processes, (frozenset[str](), None))
        if pool is not None and workflow.name in known:
            return pool
        if pool is not None:  # registered since it was made
            pool.close()
        place_of(workflow)
        found = [each for each in self._workflows.values() if _has_place(each)]
        code = {each.name: each for each in found}
        pool = Pool(code, codec=self._codec.codec.name, options=self._options, processes=processes)
        self._pools[processes] = frozenset(code), pool
        return pool

    def close(self) -> None:
        """End the processes, and with them any check under way."""
        for pool in (*(pool for _, pool in self._pools.values()), *self._stored.values()):
            pool.close()
        self._pools.clear()
        self._stored.clear()
        self._thread.stop()
        self._thread = StoreThread("perdure-check")  # the engine may be opened again


def _has_place(workflow: WorkflowDefinition) -> bool:
    with suppress(UsageError):
        place_of(workflow)
        return True
    return False
