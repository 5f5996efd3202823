"""`SyncEngine` and `SyncRun`: the same engine for code without an event loop.

The engine runs on a loop of its own, on a thread. Each method here is the async one, called across: none is written
a second time.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from perdure.api.engine import Engine
from perdure.api.run import Run
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from perdure.api.reading import RunInfo

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _engine_call(
    method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncEngine, P], T]:
    def call(self: SyncEngine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait(method(self.engine, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


def _run_call(
    method: Callable[Concatenate[Run[Any], P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncRun[Any], P], T]:
    def call(self: SyncRun[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._engine.wait(method(self._run, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class SyncRun(Generic[R]):
    """A handle on a run, for code without an event loop; see `Run`."""

    __slots__ = ("_engine", "_run", "id")

    def __init__(self, engine: SyncEngine, run: Run[R]) -> None:
        self._engine = engine
        self._run = run
        self.id = run.id

    def __repr__(self) -> str:
        return f"<SyncRun {self.id!r}>"

    result = _run_call(Run.result)
    status = _run_call(Run.status)
    info = _run_call(Run.info)
    history = _run_call(Run.history)
    value = _run_call(Run.value)
    cancel = _run_call(Run.cancel)


class SyncEngine:
    """`Engine` for code without an event loop: scripts, Flask, Django. Takes the same arguments.

    Use it as a context manager. Its methods may be called from any thread.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.engine = Engine(*args, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> Self:
        """Start the engine on a thread of its own; see `Engine.open`."""
        if self._loop is not None:
            message = "the engine is open already"
            raise UsageError(message)
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
            finally:
                self._stop_loop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop and wait for it.

        Raises:
            UsageError: the engine is not open, or this is its own thread, which must not wait for itself.
        """
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

    def start(self, workflow: Any, /, *args: Any, **options: Any) -> SyncRun[Any]:
        """Record a run and return a handle on it; see `Engine.start`."""
        return SyncRun(self, self.wait(self.engine.start(workflow, *args, **options)))

    def get(self, run_id: str) -> SyncRun[Any]:
        """Return a handle on a run by its id, without looking whether it exists."""
        return SyncRun(self, self.engine.get(run_id))

    def list(self, **conditions: Any) -> Iterator[RunInfo]:
        """Iterate over the runs that match, newest first; see `Engine.list`."""
        iterator: AsyncIterator[RunInfo] = self.engine.list(**conditions)
        while (found := self.wait(_next(iterator))) is not None:
            yield found

    run = _engine_call(Engine.run)
    cancel = _engine_call(Engine.cancel)
    retry = _engine_call(Engine.retry)
    purge = _engine_call(Engine.purge)

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
