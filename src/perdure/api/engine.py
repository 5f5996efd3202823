"""`Engine`: the database, the workflows this process can run, and a worker that runs them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from perdure.api import reading
from perdure.api.checking import Checker
from perdure.api.collect import collect
from perdure.api.hosts import Hosts
from perdure.api.joining import record_async, run_id
from perdure.api.many import start_many
from perdure.api.operations import Operations
from perdure.api.outcome import outcome_of
from perdure.api.queues import Routes, declare, served
from perdure.api.run import Run
from perdure.api.settings import build_settings
from perdure.api.starts import Starts
from perdure.api.versioning import Registrar, hosted_settings, plan_of, registrars, take_options
from perdure.api.versions import VersionRoutes, Versions
from perdure.codec.base import open_chain
from perdure.errors import UsageError
from perdure.model.duration import Duration
from perdure.model.write import Outdated
from perdure.runtime.carried import NOTHING, Carried
from perdure.runtime.connection import Connection
from perdure.runtime.host import Host
from perdure.runtime.worker import Worker
from perdure.store.base import StoreOptions, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import ModuleType

    from perdure.api.decorators import P, Workflow
    from perdure.api.many import Start
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.queue import Queue
    from perdure.runtime.hosts.plan import Plan
    from perdure.runtime.settings import Settings

R = TypeVar("R")
_LOOK_S = 0.1
DEFAULT_URL = "sqlite:///perdure.db"


class Engine(Operations):
    """Start runs and, unless ``worker=False``, execute them on the caller's event loop.

    Use it as an async context manager, or call `open` and `close`.

    Args:
        url: database; ``$PERDURE_DB`` or ``sqlite:///perdure.db`` by default.
        workflows: workflow functions, or modules whose workflows are meant.
        worker: execute due runs in this process; False for a client only.
        queues: queues served: names, or `Queue` objects, which also declare their limits in the database; or names
            with weights, such as ``{"mail": 3, "reports": 1}``. Queues that all have runs share the worker by weight.
        concurrency: runs that may be active at once in this process.
        lease: how long a silent worker keeps its runs.
        grace: how long steps in flight may go on when the engine closes.
        routes: pattern of workflow names to queue, such as ``{"media.*": "slow"}``: where a run is put whose start
            names no queue. The first that matches counts.
        durability: ``"host"``, ``"quorum"``, ``"process"`` or ``"memory"``; see the documentation of guarantees.
        **options: further settings by name, as `Settings` documents them: ``threads``, ``poll``, ``evict_after``,
            ``max_deaths``, ``max_bytes``, ``ahead_results``, ``ahead``, ``name`` of the worker, and ``only``,
            the id of the one run it takes. For a client also ``read_only``, ``create=False`` (the database must exist),
            ``migrate=False`` (its schema must be current).

    Attributes:
        versions, routes: the versions of workflows, and which new runs start on (not the queues they are put on).
        hosts: the processes that run versions which nobody was deployed with.

    Raises:
        UsageError: a setting has a wrong value, or two workflows have one name.
    """

    def __init__(
        self, url: str | None = None, workflows: Iterable[Callable[..., Any] | ModuleType] = (), *, worker: bool = True,
        queues: Iterable[str | Queue] | Mapping[str, int] = ("default",), concurrency: int = 100,
        lease: Duration = "10s", grace: Duration = "30s", durability: str = "host",
        routes: Mapping[str, str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.url: str = url or os.environ.get("PERDURE_DB") or DEFAULT_URL
        self._name: str | None = options.pop("name", None)
        self._only: str | None = options.pop("only", None)
        codecs = options.pop("codecs", ("json",))
        self._version_options = take_options(options)
        access = {name: options.pop(name) for name in ("read_only", "create", "migrate") if name in options}
        self._served = served(queues)
        self._routes = Routes(routes)
        self._counted: set[str] = set()
        self._settings: Settings = build_settings(
            queues=self._served.names, weights=self._served.weights, concurrency=concurrency, lease=lease, grace=grace,
            **options,
        )  # fmt: skip
        self._declared = () if access.get("read_only") else self._served.declared
        self._workflows, self._steps = collect(workflows)
        self._with_worker = worker
        self._store_options = StoreOptions(durability=durability, **access)
        self._store = open_store(self.url, self._store_options)
        self._codecs = codecs
        self._parent: str | None = None
        facts = codecs if isinstance(codecs, Mapping) else None
        self._codec = open_chain(tuple(codecs), facts, max_bytes=self._settings.max_bytes)
        self.versions: Versions = Versions(self, registrars(self._store, self._workflows, self._version_options))
        self.routes: VersionRoutes = VersionRoutes(self)
        self.hosts: Hosts = Hosts(self)
        self._connection: Connection | None = None
        self._worker: Worker | None = None
        self._starts: Starts | None = None
        self._closing: asyncio.Task[None] | None = None
        name = self._codec.codec.name
        self._checker = Checker(self._workflows, self._codec, (facts or {}).get(name, {}), self._plan)

    async def open(self) -> Self:
        """Connect, bring the schema up to date, start the worker.

        Raises:
            UsageError: the database cannot be used.
            StoreError: it is not reachable, damaged, or of a newer schema.
        """
        if self._connection is not None:
            message = "the engine is open already"
            raise UsageError(message)
        connection = Connection(self._store, self._codec)
        await connection.open()
        try:
            self._counted |= await declare(connection, self._declared)
            worker = await self._started(connection) if self._with_worker else None
        except BaseException:
            await connection.close()  # nobody else will: there is nothing to leave a `with` block of
            raise
        self._connection, self._worker = connection, worker
        self._starts = Starts(
            connection, worker, self._workflows, self._routes, self._served.names, self._counted, self._admit
        )  # fmt: skip
        return self

    async def _started(self, connection: Connection) -> Worker:
        """Register the versions of the workflows, and start a worker that carries them."""
        carried = await self._carry(connection)
        host = Host(
            store=self._store, writer=connection.writer, reader=connection.reader, loop=asyncio.get_running_loop(),
            settings=self._settings, codec=self._codec, workflows=self._workflows, steps=self._steps,
            waiters=connection.waiters, commit_ids=connection.commit_ids, carried=carried,
        )  # fmt: skip
        if carried.watch is not None:
            carried.watch.install()
        worker = Worker(host, self._name, only=self._only, parent=self._parent, plan=self._plan(carried))
        try:
            await worker.start()
        except BaseException:
            if carried.watch is not None:
                carried.watch.remove()
            raise
        return worker

    async def _carry(self, connection: Connection) -> Carried:
        """Register the versions of the workflows."""
        registrar = Registrar(self._store, self._workflows, self._version_options)
        carried: Carried = await connection.read(registrar.register)
        return carried

    def _plan(self, carried: Carried | None = None) -> Plan | None:
        """Return how processes are told to load a stored version; None where no other process sees the database."""
        if not self._store.capabilities.shared:
            return None
        known = NOTHING if self._worker is None else self._worker.host.carried
        settings = hosted_settings(self._settings, self._store_options.durability, self._codecs, self._only)
        return plan_of(self.url, settings, self._version_options, carried or known)

    async def _admit(self, definition: WorkflowDefinition) -> None:
        """Register a workflow that is started before anybody said it would be, as if it had been there at the start."""
        worker = self._worker
        if worker is not None:
            registrar = Registrar(self._store, {definition.name: definition}, self._version_options)
            more: Carried = await self.connection.read(registrar.register)
            worker.host.carried = worker.host.carried.joined(more)

    async def close(self) -> None:
        """Stop the worker in good order and let go of the database. May be called twice.

        A cancellation does not stop it half-way: it only ends the wait for steps in flight.

        Raises:
            UsageError: this is not the event loop the engine was opened on.
        """
        connection, worker = self._connection, self._worker
        if connection is not None and connection.loop is not asyncio.get_running_loop():
            message = "the engine was opened on another event loop"
            raise UsageError(message, hint="close it where it was opened")
        if connection is not None:
            self._connection = self._worker = None
            self._closing = asyncio.create_task(self._let_go(connection, worker), name="perdure-close")
        closing = self._closing
        cancelled: asyncio.CancelledError | None = None
        while closing is not None and not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError as error:
                if cancelled is not None:
                    closing.cancel()  # asked twice: leave without handing back
                cancelled = error
                if worker is not None:
                    worker.stop_by = 0.0
        if cancelled is not None:
            raise cancelled

    async def _let_go(self, connection: Connection, worker: Worker | None) -> None:
        try:
            if worker is not None:
                await worker.stop(self._settings.grace_us / 1_000_000)
        finally:
            self._checker.close()
            if worker is not None and worker.host.carried.watch is not None:
                worker.host.carried.watch.remove()
            await connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def failure(self) -> str:
        """Wait until this engine cannot go on, and return why: the store failed, or the heartbeat did.

        A database that is merely unreachable is no reason: the engine waits for it.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            crash = self.connection.writer.crash
            if crash is not None:
                return f"the store failed: {type(crash).__name__}: {crash}"
            if self._worker is not None and (reason := self._worker.failure) is not None:
                return reason

    @property
    def worker_name(self) -> str | None:
        """Name of the worker, as people see it; None for a client."""
        return None if self._worker is None else self._worker.name

    @property
    def starts(self) -> Starts:
        """What starts runs. Internal."""
        self.connection  # noqa: B018 - raises if the engine is not open
        return cast("Starts", self._starts)

    @property
    def connection(self) -> Connection:
        """The open connection. Internal."""
        if self._connection is None:
            message = "the engine is not open"
            raise UsageError(message, hint="use `async with perdure.Engine(...) as engine:`")
        return self._connection

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
        return await start_many(self, starts)

    def check_start(self, start: Start) -> None:
        """Raise what a start would raise before it records anything. Internal."""
        self.starts.check(start)

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
        """Start a run (see `start` for the options) and wait for its result."""
        handle: Run[Any] = await self.start(workflow, *args, **options)
        return await self.await_result(handle.id, is_new=handle.is_new)

    def get(self, run_id: str) -> Run[Any]:
        """Return a handle on a run by its id, without looking whether it exists."""
        return Run(self, run_id)

    async def await_result(self, run_id: str, *, is_new: bool = False) -> Any:
        """Wait for a run's end; see `Run.result`. A run that is new was recorded just now by this engine."""
        connection = self.connection
        row, last = await reading.when_ended(connection, run_id, is_new=is_new)
        return outcome_of(row, last, connection.codec, self._workflows.get(row.workflow))
