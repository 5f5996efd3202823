"""`Engine`: the database, the workflows this process can run, and a worker that runs them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from perdure.api.checking import Checker
from perdure.api.collect import collect
from perdure.api.hosts import Hosts
from perdure.api.queues import Routes, declare, served
from perdure.api.runs import Runs
from perdure.api.settings import build_settings
from perdure.api.starts import Starts
from perdure.api.versioning import Registrar, hosted_settings, plan_of, registrars, take_options
from perdure.api.versions import VersionRoutes, Versions
from perdure.codec.base import open_chain
from perdure.errors import UsageError
from perdure.model.duration import Duration
from perdure.runtime.carried import NOTHING, Carried
from perdure.runtime.connection import Connection
from perdure.runtime.host import Host
from perdure.runtime.worker import Worker
from perdure.store.base import StoreOptions, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.queue import Queue
    from perdure.runtime.hosts.plan import Plan
    from perdure.runtime.settings import Settings

_LOOK_S = 0.1
_LEAST_PATIENCE_S = 2.0
"""So long a closing engine waits at least for an answer of the database while something is unwritten."""
DEFAULT_URL = "sqlite:///perdure.db"


class Engine(Runs):
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
        grace: how long steps in flight may go on when the engine closes, and how long it waits for a database that is
            away while something is unwritten: whoever awaits that gets `StoreUnavailable`.
        routes: pattern of names to queue, such as ``{"media.*": "slow"}``: where a run of a workflow is put whose
            start names no queue, and where a step is executed, by a run of its own. The first that matches counts.
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
        registrar = registrars(self._store, self._workflows, self._version_options)
        self.versions: Versions = Versions(self, registrar, self._version_options.trusted_keys)
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
            await connection.close(0.0)  # nobody else will: there is nothing to leave a `with` block of
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
            waiters=connection.waiters, commit_ids=connection.commit_ids, definitions=connection.definitions,
            carried=carried,
        )  # fmt: skip
        if self._routes.given and self._only is None:  # else whoever takes but one run would wait for others
            host.queue_of_step = self._routes.queue_of
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
        settings = hosted_settings(
            self._settings, self._store_options.durability, self._codecs, self._only, self._routes.given
        )
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
        grace_s, began = self._settings.grace_us / 1_000_000, monotonic()
        try:
            if worker is not None:
                await worker.stop(grace_s)
        finally:
            self._checker.close()
            if worker is not None and worker.host.carried.watch is not None:
                worker.host.carried.watch.remove()
            await connection.close(max(began + grace_s - monotonic(), _LEAST_PATIENCE_S))

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
    def connection(self) -> Connection:
        """The open connection. Internal."""
        if self._connection is None:
            message = "the engine is not open"
            raise UsageError(message, hint="use `async with perdure.Engine(...) as engine:`")
        return self._connection
