"""How an engine starts runs, and gives handles on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from perdure.api import reading
from perdure.api.forking import fork
from perdure.api.joining import record_async, run_id, split
from perdure.api.many import start_many
from perdure.api.operations import Operations
from perdure.api.outcome import outcome_of
from perdure.api.run import Run
from perdure.model.write import Outdated

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from perdure.api.decorators import P, Workflow
    from perdure.api.many import Start
    from perdure.api.starts import Starts
    from perdure.model.duration import Duration
    from perdure.runtime.registry import WorkflowRegistry
    from perdure.runtime.waiters import End

R = TypeVar("R")


class Runs(Operations):
    """Part of `perdure.Engine`."""

    _workflows: WorkflowRegistry
    _starts: Starts | None

    @property
    def starts(self) -> Starts:
        """What starts runs. Internal."""
        self.connection  # noqa: B018 - raises if the engine is not open
        assert self._starts is not None  # noqa: S101 - it comes with the connection
        return self._starts

    @overload
    async def start(
        self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, id: str | None = None,
        queue: str | None = None, priority: int = 0, delay: Duration | None = None, version: str | None = None,
        channel: str | None = None, routing_key: str | None = None, timeout: Duration | None = None,
        tags: Mapping[str, str] | None = None, partition_key: str | None = None, deduplication_key: str | None = None,
        **kwargs: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, workflow: Workflow[P, R], /, *args: Any, id: str | None = None, queue: str | None = None,
        priority: int = 0, delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> Run[R]: ...  # fmt: skip
    @overload
    async def start(
        self, workflow: str, /, *args: Any, id: str | None = None, queue: str | None = None, priority: int = 0,
        delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> Run[Any]: ...  # fmt: skip
    async def start(
        self, workflow: Any, /, *args: Any, id: str | None = None, queue: str | None = None, priority: int = 0,
        delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> Run[Any]:  # fmt: skip
        """Record a run and return a handle on it. Once this returns, the run exists whatever happens.

        A repeat with the same id, workflow and arguments returns the same run, also after it has ended.

        Args:
            workflow: workflow function, or its name.
            *args: arguments of the workflow.
            id: id of the run; a new one by default.
            queue: queue to put it on; by default the one that ``routes`` name for the workflow, else ``default``.
            priority: higher is sooner.
            delay: earliest time to begin, from now.
            version: version to run: a label such as ``1.2.0``, the beginning of a hash, or a range such as
                ``>=1.2,<2``. By default what the channel's route says, and without a route the newest.
            channel: route that chooses the version, by name; ``default`` by default.
            routing_key: what the route chooses by, such as a customer's id: one key, one choice. By default the
                run's id.
            timeout: time limit of the whole run, from now.
            tags: text to text, to list runs by.
            partition_key: whose run it is: what a queue is fair to, and limits by.
            deduplication_key: while a run of the same queue with this key has not ended, that run is returned instead,
                whatever its workflow and arguments.
            **kwargs: arguments of the workflow.

        Raises:
            UsageError: wrong arguments or options; nothing is stored.
            CodecError: an argument cannot be stored; names it, with path and type.
            IdConflict: the id belongs to another start.
            StoreError: the database cannot be used.
        """
        return await self.start_call(
            workflow, args, kwargs, id=id, queue=queue, priority=priority, delay=delay, version=version,
            channel=channel, routing_key=routing_key, timeout=timeout, tags=tags, partition_key=partition_key,
            deduplication_key=deduplication_key,
        )  # fmt: skip

    async def start_call(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
    ) -> Run[Any]:
        """Start a run whose arguments may have the names of options; see `start` for those."""
        started = await self.starts.start(workflow, args, kwargs, options)
        return Run(self, started.run_id, is_new=started.is_new)

    async def start_many(self, starts: Iterable[Start]) -> list[Run[Any]]:
        """Start many runs, with few transactions for all of them, and return their handles in order.

        All are checked before the first is recorded. Each is then a start by itself, so the call can be repeated.

            runs = await engine.start_many(perdure.Start(fulfil, order, id=order.id) for order in orders)

        Raises:
            UsageError: wrong arguments or options; nothing is stored.
            CodecError: an argument cannot be stored; nothing is.
            IdConflict: an id belongs to another start; the others are recorded.
            StoreError: the database cannot be used.
        """
        started = await start_many(self.starts, starts)
        return [Run(self, one.run_id, is_new=one.is_new) for one in started]

    @overload
    async def start_in(
        self, connection: Any, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, **options: Any
    ) -> Run[R]: ...
    @overload
    async def start_in(self, connection: Any, workflow: Workflow[P, R], /, *args: Any, **options: Any) -> Run[R]: ...
    @overload
    async def start_in(self, connection: Any, workflow: str, /, *args: Any, **options: Any) -> Run[Any]: ...
    async def start_in(self, connection: Any, workflow: Any, /, *args: Any, **options: Any) -> Run[Any]:
        """Record a run inside the caller's own transaction, in the engine's database: it exists if that is committed.

        Wait for its result after the commit. Of two with one id or one deduplication key at once the second waits for
        the first's transaction.

        Args:
            connection: async connection of psycopg or SQLAlchemy, or session, to the engine's own database, with its
                transaction open: PostgreSQL, MySQL or MariaDB. For one that blocks there is `SyncEngine`.
            workflow: workflow function, or its name.
            *args: arguments of the workflow.
            **options: options and further arguments, as of `start`.

        Raises:
            UsageError: wrong arguments or options, or a connection that cannot be used; nothing is written.
            CodecError, IdConflict: as of `start`; nothing is written.
            GuardBusy: another transaction has the id or the key, and the wait was too long. Roll back and try again.
        """
        joining = await self.starts.joining(workflow, args, options)
        while isinstance(found := await record_async(connection, self.connection, joining), Outdated):
            joining = await self.starts.joining(workflow, args, options, anew=True)
        return Run(self, await run_id(self.connection, joining, found))

    @overload
    async def run(self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    async def run(self, workflow: Workflow[P, R], /, *args: Any, **options: Any) -> R: ...
    @overload
    async def run(self, workflow: str, /, *args: Any, **options: Any) -> Any: ...
    async def run(self, workflow: Any, /, *args: Any, **options: Any) -> Any:
        """Start a run (see `start` for the options) and wait for its result.

        Raises what `start` and `Run.result` raise. The run goes on if the wait is given up.
        """
        chosen, arguments = split(options)
        started = await self.starts.start(workflow, args, arguments, chosen, until_end=True)
        return await self.await_result(started.run_id, started.end)

    async def fork(
        self, run_id: str, *, id: str | None = None, from_step: str | int | None = None, to: str | None = None,
        actor: str | None = None, reason: str | None = None,
    ) -> Run[Any]:  # fmt: skip
        """Start a new run that begins with what another one has recorded, and return a handle on it.

        The other run is only read. What the new one does again it does under its own id, so under its own idempotency
        keys: it is how a run is started again from a step.

        Args:
            run_id: the run, ended or not.
            id: id of the new run; a new one by default.
            from_step: id of the operation that is not copied, nor what was recorded after it. By default everything is
                copied but the way a run has ended; of a failed run, what stands before the step that failed.
            to: the version of the new run, against which the history is checked first; by default the same.
            actor: who does it; the system's user by default.
            reason: why.

        Raises:
            RunNotFound: there is no such run, or its history was purged.
            UsageError: it has recorded no such operation.
            IdConflict: the new id is taken.
            UpgradeRefused: the history does not fit the version.
            UnknownVersion, VersionClosed, VersionPurged, VersionLoadFailed: see `check`.
        """
        step = None if from_step is None else str(from_step)
        new_id = await fork(self, run_id, id=id, from_step=step, to=to, actor=actor, reason=reason)
        return Run(self, new_id)

    def get(self, run_id: str) -> Run[Any]:
        """Return a handle on a run by its id, without looking whether it exists."""
        return Run(self, run_id)

    async def await_result(self, run_id: str, end: End | None = None) -> Any:
        """Wait for a run's end, unless it is known; see `Run.result`. Internal."""
        connection = self.connection
        row, last = end or await reading.when_ended(connection, run_id)
        return outcome_of(row, last, connection.codec, self._workflows.get(row.workflow))
