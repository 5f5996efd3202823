"""`SyncEngine` and `SyncRun`: the same engine for code without an event loop.

The engine runs on a loop of its own, on a thread. Each method here calls the async one across and says no more: only
its signature is written a second time, so that type checkers and editors know it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from perdure.api.engine import Engine
from perdure.api.hosts import SyncHosts
from perdure.api.joining import record, run_id
from perdure.api.sync_upgrades import SyncUpgrading
from perdure.api.sync_versions import SyncVersionRoutes, SyncVersions
from perdure.errors import UsageError
from perdure.model.write import Outdated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import ModuleType

    from perdure.api.decorators import Workflow
    from perdure.api.many import Start
    from perdure.api.queues import QueueHandle, QueueInfo, QueueSettings
    from perdure.api.reading import Event, RunInfo
    from perdure.api.run import Run
    from perdure.model.duration import Duration
    from perdure.model.status import Status
    from perdure.replay.history import History
    from perdure.replay.verdict import Verdict

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class SyncRun(Generic[R_co]):
    """A handle on a run, for code without an event loop; see `Run`."""

    __slots__ = ("_engine", "_run", "id")

    def __init__(self, engine: SyncEngine, run: Run[R_co]) -> None:
        self._engine = engine
        self._run = run
        self.id: str = run.id

    def __repr__(self) -> str:
        return f"<SyncRun {self.id!r}>"

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the run ends and return its result; see `Run.result`."""
        return self._engine.wait(self._run.result(timeout))

    def status(self) -> Status:
        """Return where the run stands; see `Run.status`."""
        return self._engine.wait(self._run.status())

    def info(self) -> RunInfo:
        """Return what a listing shows of the run; see `Run.info`."""
        return self._engine.wait(self._run.info())

    def history(self) -> list[Event]:
        """Return the run's log; see `Run.history`."""
        return self._engine.wait(self._run.history())

    def recording(self) -> History:
        """Return the run by itself; see `Run.recording`."""
        return self._engine.wait(self._run.recording())

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value the run last published under ``name``; see `Run.value`."""
        return self._engine.wait(self._run.value(name, default))

    def cancel(self, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Ask the run to stop; see `Run.cancel`."""
        return self._engine.wait(self._run.cancel(reason=reason, actor=actor))


class SyncQueueHandle:
    """A handle on a queue, for code without an event loop; see `QueueHandle`.

    Attributes:
        name: name of the queue.
    """

    __slots__ = ("_engine", "_queue", "name")

    def __init__(self, engine: SyncEngine, queue: QueueHandle) -> None:
        self._engine = engine
        self._queue = queue
        self.name: str = queue.name

    def info(self) -> QueueInfo:
        """Return its settings and what is in it; see `QueueHandle.info`."""
        return self._engine.wait(self._queue.info())

    def set(self, *, actor: str | None = None, reason: str | None = None, **settings: Unpack[QueueSettings]) -> None:
        """Change settings; see `QueueHandle.set`."""
        self._engine.wait(self._queue.set(actor=actor, reason=reason, **settings))

    def pause(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """Claim nothing from it until it is resumed; see `QueueHandle.pause`."""
        self._engine.wait(self._queue.pause(actor=actor, reason=reason))

    def resume(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """Let runs be claimed again; see `QueueHandle.resume`."""
        self._engine.wait(self._queue.resume(actor=actor, reason=reason))


class SyncEngine(SyncUpgrading):
    """`Engine` for code without an event loop: scripts, Flask, Django. Takes the same arguments.

    Use it as a context manager. Its methods may be called from any thread.

    Attributes:
        versions: the versions of workflows; see `Versions`.
        routes: which versions new runs start on; see `VersionRoutes`.
        hosts: the processes that run versions which nobody was deployed with; see `Hosts`.
    """

    def __init__(
        self, url: str | None = None, workflows: Iterable[Callable[..., Any] | ModuleType] = (), **options: Any
    ) -> None:
        self.engine: Engine = Engine(url, workflows, **options)
        self.versions: SyncVersions = SyncVersions(self)
        self.routes: SyncVersionRoutes = SyncVersionRoutes(self)
        self.hosts: SyncHosts = SyncHosts(self.wait, self.engine.hosts)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def open(self) -> Self:
        """Start the engine on a thread of its own; see `Engine.open`."""
        if self._loop is not None:
            message = "the engine is open already"
            raise UsageError(message)
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-engine", daemon=True)
        self._thread.start()
        try:
            self.wait(self.engine.open())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def close(self) -> None:
        """Stop the engine and its thread; see `Engine.close`."""
        if self._loop is not None:
            try:
                self.wait(self.engine.close())
            except KeyboardInterrupt:
                self.wait(self.engine.close())  # the first one goes on, and no longer waits for steps in flight
                raise
            finally:
                self._stop_loop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop and wait for it.

        Raises:
            UsageError: the engine is not open, or not in this process, or this is its own thread, which must not wait
                for itself.
        """
        if self._loop is not None and self._process != os.getpid():
            coroutine.close()
            message = "the engine was opened before a fork and cannot be used in the child"
            raise UsageError(message, hint="open it after the fork")
        if self._loop is None or threading.current_thread() is self._thread:
            coroutine.close()
            message = "the engine is not open" if self._loop is None else "a blocking call on the engine's own thread"
            raise UsageError(message)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @overload
    def start(
        self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, id: str | None = None,
        queue: str | None = None, priority: int = 0, delay: Duration | None = None, version: str | None = None,
        channel: str | None = None, routing_key: str | None = None, timeout: Duration | None = None,
        tags: Mapping[str, str] | None = None, partition_key: str | None = None, deduplication_key: str | None = None,
        **kwargs: Any,
    ) -> SyncRun[R]: ...  # fmt: skip
    @overload
    def start(
        self, workflow: Workflow[P, R], /, *args: Any, id: str | None = None, queue: str | None = None,
        priority: int = 0, delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> SyncRun[R]: ...  # fmt: skip
    @overload
    def start(
        self, workflow: str, /, *args: Any, id: str | None = None, queue: str | None = None, priority: int = 0,
        delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> SyncRun[Any]: ...  # fmt: skip
    def start(self, workflow: Any, /, *args: Any, **options: Any) -> SyncRun[Any]:
        """Record a run and return a handle on it; see `Engine.start`."""
        return SyncRun(self, self.wait(self.engine.start(workflow, *args, **options)))

    @overload
    def start_in(
        self, connection: Any, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, **options: Any
    ) -> SyncRun[R]: ...
    @overload
    def start_in(self, connection: Any, workflow: Workflow[P, R], /, *args: Any, **options: Any) -> SyncRun[R]: ...
    @overload
    def start_in(self, connection: Any, workflow: str, /, *args: Any, **options: Any) -> SyncRun[Any]: ...
    def start_in(self, connection: Any, workflow: Any, /, *args: Any, **options: Any) -> SyncRun[Any]:
        """Record a run inside the caller's own transaction; see `Engine.start_in`.

        Takes a connection of psycopg, PyMySQL or Django, or SQLAlchemy's connection or session, and uses it on the
        calling thread.
        """
        joining = self.wait(self.engine.starts.joining(workflow, args, options))
        while isinstance(found := record(connection, self.engine.connection, joining), Outdated):
            joining = self.wait(self.engine.starts.joining(workflow, args, options, anew=True))
        return SyncRun(self, self.engine.get(self.wait(run_id(self.engine.connection, joining, found))))

    @overload
    def run(self, workflow: Workflow[P, Coroutine[Any, Any, R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    def run(self, workflow: Workflow[P, R], /, *args: Any, **options: Any) -> R: ...
    @overload
    def run(self, workflow: str, /, *args: Any, **options: Any) -> Any: ...
    def run(self, workflow: Any, /, *args: Any, **options: Any) -> Any:
        """Start a run and wait for its result; see `Engine.run`."""
        return self.wait(self.engine.run(workflow, *args, **options))

    def get(self, run_id: str) -> SyncRun[Any]:
        """Return a handle on a run by its id, without looking whether it exists."""
        return SyncRun(self, self.engine.get(run_id))

    def list(
        self, *, status: str | Iterable[str] | None = None, workflow: Any = None, version: str | None = None,
        queue: str | None = None, tag: Mapping[str, str] | None = None, since: datetime | None = None,
        until: datetime | None = None, limit: int | None = None, cursor: str | None = None,
    ) -> Iterator[RunInfo]:  # fmt: skip
        """Iterate over the runs that match, newest first; see `Engine.list`."""
        found = self.engine.list(
            status=status, workflow=workflow, version=version, queue=queue, tag=tag, since=since, until=until,
            limit=limit, cursor=cursor,
        )  # fmt: skip
        while (info := self.wait(_next(found))) is not None:
            yield info

    def cancel(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Ask a run to stop; see `Engine.cancel`."""
        return self.wait(self.engine.cancel(run_id, reason=reason, actor=actor))

    def retry(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> str:
        """Let a failed or parked run go on; see `Engine.retry`."""
        return self.wait(self.engine.retry(run_id, reason=reason, actor=actor))

    def purge(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> None:
        """Delete a finished run's history; see `Engine.purge`."""
        return self.wait(self.engine.purge(run_id, reason=reason, actor=actor))

    def check(self, run_id: str, *, to: str | None = None, processes: int = 2) -> Verdict:
        """Replay what is recorded of a run with other code; see `Engine.check`."""
        return self.wait(self.engine.check(run_id, to=to, processes=processes))

    def start_many(self, starts: Iterable[Start]) -> Sequence[SyncRun[Any]]:
        """Start many runs; see `Engine.start_many`."""
        return tuple(SyncRun(self, run) for run in self.wait(self.engine.start_many(starts)))

    def queues(self) -> tuple[QueueInfo, ...]:
        """Return every queue that has settings or open runs; see `Engine.queues`."""
        return self.wait(self.engine.queues())

    def queue(self, name: str) -> SyncQueueHandle:
        """Return a handle on a queue; see `Engine.queue`."""
        return SyncQueueHandle(self, self.engine.queue(name))

    def _stop_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=10)
            if not thread.is_alive():
                loop.close()


async def _next(iterator: AsyncIterator[RunInfo]) -> RunInfo | None:
    return await anext(iterator, None)
