"""What an engine can do with runs and queues that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api import acting, reading
from perdure.api.health import EngineStats
from perdure.api.queues import QueueHandle, list_queues
from perdure.api.upgrades import Upgrades
from perdure.api.version_use import OtherRuns, other_runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from datetime import datetime

    from perdure.api.checking import Checker
    from perdure.api.queues import QueueInfo
    from perdure.api.reading import RunInfo
    from perdure.replay.verdict import Verdict
    from perdure.runtime.connection import Connection
    from perdure.runtime.worker import Worker


class Operations:
    """Part of `perdure.Engine`."""

    _worker: Worker | None
    _checker: Checker

    @property
    def connection(self) -> Connection:
        """The open connection. Internal."""
        raise NotImplementedError

    @property
    def checker(self) -> Checker:
        """What checks histories. Internal."""
        return self._checker

    async def list(
        self, *, status: str | Iterable[str] | None = None, workflow: Any = None, version: str | None = None,
        queue: str | None = None, tag: Mapping[str, str] | None = None, since: datetime | None = None,
        until: datetime | None = None, limit: int | None = None, cursor: str | None = None,
    ) -> AsyncIterator[RunInfo]:  # fmt: skip
        """Iterate over the runs that match, newest first.

        Args:
            status: one state or several.
            workflow: workflow or its name.
            version: label of the version, or the beginning of its hash.
            queue: name of the queue.
            tag: tags that the run must have.
            since: created at or after this time.
            until: created before this time.
            limit: at most so many.
            cursor: id of the run after which to go on.

        Raises:
            UsageError: an unknown state, a time without a zone, a cursor that is no run, or a value of a wrong type.
        """
        query = await reading.build_filter(
            self.connection, status=status, workflow=workflow, version=version, queue=queue, tag=tag, since=since,
            until=until, cursor=cursor,
        )  # fmt: skip
        async for info in reading.pages(self.connection, query, limit):
            yield info

    async def cancel(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Ask a run to stop; see `Run.cancel`. Raises `RunNotFound`."""
        done = await acting.cancel(self.connection, run_id, actor=actor, reason=reason)
        if self._worker is not None:
            self._worker.message_sent(run_id)
        return done

    async def retry(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> str:
        """Let a failed or parked run go on; completed steps keep their results. Returns what was done, in one line.

        Raises:
            RunNotFound: there is no such run.
            UsageError: the run is neither failed nor parked.
        """
        told = await acting.retry(self.connection, run_id, actor=actor, reason=reason)
        if self._worker is not None:
            self._worker.want_claim()
        return told

    async def purge(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> None:
        """Delete a finished run's history; its id stays taken.

        Who purges what somebody else has purged meanwhile changes nothing: it stays recorded who was first.

        Raises:
            RunNotFound: there is no such run.
            UsageError: the run has not ended.
        """
        await acting.purge(self.connection, run_id, actor=actor, reason=reason)

    async def check(self, run_id: str, *, to: str | None = None, processes: int = 2) -> Verdict:
        """Replay what is recorded of a run with other code, without calling a step.

        Args:
            run_id: the run, ended or not; it is only read.
            to: the stored version to check against: a label, the beginning of a hash, or a range. By default the code
                that was given to this engine.
            processes: replay in so many processes of this engine, each with another hash seed; 0 for this process,
                which can load no stored version.

        Raises:
            RunNotFound: there is no such run, or its history was purged.
            UsageError: its workflow is not here, or cannot be loaded in another process.
            UnknownVersion, VersionClosed, VersionPurged: there is no such version, or it takes no runs.
            VersionLoadFailed: the version cannot be loaded.
        """
        return await self._checker.check(self.connection, run_id, to, processes)

    @property
    def upgrades(self) -> Upgrades:
        """What binds runs to other versions."""
        return Upgrades(self)

    async def queues(self) -> tuple[QueueInfo, ...]:
        """Return every queue that has settings or open runs, by name, with what is in it. Counts them."""
        return await list_queues(self.connection)

    def queue(self, name: str) -> QueueHandle:
        """Return a handle on a queue, to look at it, set its limits, pause and resume it.

        Raises:
            UsageError: the name cannot name a queue.
        """
        return QueueHandle(self, name)

    def stats(self) -> EngineStats:
        """Return what this engine has counted so far: how often it need not ask its database. Asks nothing.

        Raises:
            UsageError: the engine is not open.
        """
        connection = self.connection
        return EngineStats(log_ends=connection.store.log_ends(), definitions=connection.definitions.stats())

    def carried_version(self, workflow: str) -> str | None:
        """Return the label of the version of a workflow that this engine's worker carries; None for none. Internal."""
        version = None if self._worker is None else self._worker.host.carried.versions.get(workflow)
        return None if version is None else version.label

    async def other_runs(self) -> tuple[OtherRuns, ...]:
        """Return the open runs of the worker's workflows that are bound to versions it does not carry. Internal."""
        versions = {} if self._worker is None else self._worker.host.carried.versions
        own = {name: version.id for name, version in versions.items()}
        found: tuple[OtherRuns, ...] = await self.connection.read(other_runs, self.connection.store, own)
        return found

    def message_sent(self, run_id: str) -> None:
        """Look at a run's inbox, or for runs to claim. Internal."""
        if self._worker is not None:
            self._worker.message_sent(run_id)

    def queue_changed(self) -> None:
        """Look for runs to claim. Internal."""
        if self._worker is not None:
            self._worker.want_claim()
