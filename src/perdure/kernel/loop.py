"""A deterministic event loop for one run: a ready queue, and no selector.

asyncio's own `Task` and `Future` run on it as subclasses, so ``gather``, ``TaskGroup``, ``wait``, ``timeout``,
``Queue`` and the rest behave as documented, and the same way each time a log is replayed:

* Callbacks run in the order they were scheduled; nothing comes from outside but deliveries of recorded events.
* Tasks and futures hash to values that depend on the run and on their number only, so sets of them iterate in the
  same order in every process.
* ``time()`` is the run's logical time, and ``call_later`` a durable timer.
* The loop keeps its tasks and asynchronous generators alive until the run ends.

It is drained by plain calls of `RunLoop.drain`, never from inside a task of another loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from asyncio import events
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn
from zlib import crc32

from msgspec import Struct

from perdure.errors import UsageError
from perdure.kernel.scope import CURRENT, Evicted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from perdure.kernel.requests import Requests

MAX_CALLBACKS = 10_000
"""Callbacks per drain, after which the body is taken for spinning."""


if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:
    # The same without a Python call: this is asked for once per operation.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]  # noqa: SLF001


_set_hooks: Callable[[Any, Any], None] = sys.set_asyncgen_hooks


class Spinning(Exception):
    """The body keeps itself busy without ever waiting for anything."""


class RunFuture(asyncio.Future[Any]):
    """A future whose hash is the same in every process."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        """Spread by run and number: small plain integers would collide in asyncio's global sets."""
        loop: Any = self.get_loop()
        return hash((loop.salt, self.number))


class RunTask(asyncio.Task[Any]):
    """A task that knows its place in the run's tree of tasks.

    ``prefix`` begins the ids of its operations and child tasks; ``count`` is how many of them there are.
    """

    __slots__ = ("context", "count", "number", "path", "prefix", "salt")

    def __init__(
        self, coro: Coroutine[Any, Any, Any], loop: RunLoop, path: str, context: contextvars.Context, name: str | None
    ) -> None:
        self.path: str = path
        self.prefix: str = f"{path}." if path else ""
        self.count: int = 0
        self.number: int = loop.next_number()
        self.salt: int = loop.salt
        # asyncio registers the task in a global set here: the hash has to be ready.
        self.context: contextvars.Context = context
        super().__init__(coro, loop=loop, name=name or f"run-task-{path or 'root'}", context=context)

    def __hash__(self) -> int:
        """Spread by run and number, as for `RunFuture`."""
        return hash((self.salt, self.number))

    def next_id(self) -> str:
        """Take the next id below this task."""
        n = self.count
        self.count = n + 1
        return self.prefix + str(n)  # a third less than an f-string takes for a number


class Handle(Struct, eq=False):
    """A scheduled callback. What `asyncio.Handle` offers, without its cost."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context
    dead: bool = False

    def cancel(self) -> None:
        """Do not run it."""
        self.dead = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.dead


class RunLoop(asyncio.AbstractEventLoop):
    """The loop of one run. Not thread-safe: one thread at a time drains it."""

    _orphans: int = 0
    _prune_at: int = 64

    def __init__(self, execution: Requests, run_id: str) -> None:
        self.execution: Any = execution
        self.outer: asyncio.AbstractEventLoop | None = events._get_running_loop()  # noqa: SLF001 - asked once: slow
        """The loop from whose callbacks this one is made and drained; None for a thread without one."""
        self._outer_hooks: tuple[Any, Any] = sys.get_asyncgen_hooks()
        self.salt: int = crc32(run_id.encode()) << 20
        self.ready: deque[Handle] = deque()
        self.tasks: list[RunTask] = []
        self.generators: dict[int, AsyncGenerator[Any, Any]] = {}
        self.next_number: Callable[[], int] = count(1).__next__
        """Return the next number for a task or future."""

    # -- what asyncio calls ------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context if context is not None else contextvars.copy_context())
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self.execution.timer(delay, None, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self.execution.timer(0, when, callback, args, context)

    def time(self) -> float:
        seconds: float = self.execution.logical_time / 1_000_000
        return seconds

    def create_future(self) -> RunFuture:
        future = RunFuture(loop=self)
        future.number = self.next_number()
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any) -> RunTask:
        if self.execution.dead:
            coro.close()
            raise Evicted
        refuse_unordered(sys._getframe(1))  # noqa: SLF001 - the only way to know who makes the task
        parent = current_task(self)
        path = parent.next_id() if isinstance(parent, RunTask) else self.next_orphan()
        return self.adopt(coro, path, context, name)

    def adopt(
        self, coro: Any, path: str, context: contextvars.Context | None = None, name: str | None = None
    ) -> RunTask:
        """Make a task with a given path and keep it alive. Whatever its context, it belongs to this run."""
        context = contextvars.copy_context() if context is None else context
        if context.get(CURRENT) is not self.execution:
            context.run(CURRENT.set, self.execution)
        task = RunTask(coro, self, path, context, name)
        if len(self.tasks) >= self._prune_at:
            self.tasks = [known for known in self.tasks if not known.done()]
            self._prune_at = 2 * len(self.tasks) + 64
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Debug mode would change timing and scheduling; it stays off."""

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.execution is not None:
            self.execution.report(context)

    async def shutdown_asyncgens(self) -> None:
        """The run closes its generators itself, in order, when its body has ended."""

    # -- what the run calls ------------------------------------------------------------------------------------

    def next_orphan(self) -> str:
        """Return an id for what is asked for outside any task."""
        self._orphans += 1
        return f"~{self._orphans - 1}"

    def drain(self) -> None:
        """Run callbacks until none is ready.

        Raises:
            Spinning: after `MAX_CALLBACKS` callbacks.
            BaseException: KeyboardInterrupt and SystemExit pass through.
        """
        ready = self.ready
        if not ready:
            return
        outer = self.outer
        events._set_running_loop(self)  # noqa: SLF001 - the documented hook for loop implementations
        _set_hooks(_first_iteration, _finalizer)
        budget = MAX_CALLBACKS
        try:
            while ready:
                handle = ready.popleft()
                if handle.dead:
                    continue
                budget -= 1
                if budget < 0:
                    raise Spinning
                try:
                    args = handle.args
                    if len(args) == 1:  # as those of futures and tasks are
                        handle.context.run(handle.callback, args[0])
                    else:
                        handle.context.run(handle.callback, *args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - as on any event loop, a callback's error is only told
                    message = f"error in callback {handle.callback!r}"
                    self.call_exception_handler({"message": message, "exception": error})
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
            _set_hooks(*self._outer_hooks)


def _first_iteration(generator: AsyncGenerator[Any, Any]) -> None:
    loop: Any = events._get_running_loop()  # noqa: SLF001 - the one that is drained
    loop.generators[id(generator)] = generator


def _finalizer(generator: AsyncGenerator[Any, Any]) -> None:
    """Never called while `RunLoop.generators` holds them; here so that asyncio's default does not run."""


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: RunLoop, *_: Any, **__: Any) -> NoReturn:
        message = f"a workflow body cannot do I/O ({name} was called in run {self.execution.run_id!r})"
        raise UsageError(message, hint="do this in a step")

    method.__name__ = name
    return method


_FOREIGN = """
    run_forever run_until_complete stop close call_soon_threadsafe run_in_executor set_default_executor
    shutdown_default_executor getaddrinfo getnameinfo create_connection create_server sendfile start_tls
    create_unix_connection create_unix_server connect_accepted_socket create_datagram_endpoint connect_read_pipe
    connect_write_pipe subprocess_shell subprocess_exec add_reader remove_reader add_writer remove_writer sock_recv
    sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept sock_sendfile
    add_signal_handler remove_signal_handler set_task_factory
"""
for _name in _FOREIGN.split():
    setattr(RunLoop, _name, _refused(_name))
RunLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def make_loop(execution: Requests, run_id: str) -> RunLoop:
    """Return a new loop. The methods that refuse were added by name, which a type checker cannot see."""
    concrete: Any = RunLoop
    loop: RunLoop = concrete(execution, run_id)
    return loop


def refuse_unordered(frame: Any) -> None:
    """Refuse ``as_completed(coroutines)``: the standard library makes their tasks in the order of a set.

    `perdure.kernel.ordered` replaces it by one that makes them in the order of its arguments; this catches a copy of
    the original that was imported before.
    """
    for _ in range(4):  # ensure_future, its inner half, a comprehension up to Python 3.11, the function itself
        if frame is None:
            return
        if frame.f_code is AS_COMPLETED_CODE:
            message = "asyncio.as_completed makes its tasks in random order here"
            hint = "import perdure before `from asyncio import as_completed`, or pass it tasks"
            raise UsageError(message, hint=hint)
        frame = frame.f_back


AS_COMPLETED_CODE: Any = None
"""Code of the standard library's function; set by `perdure.kernel.ordered` before it is replaced."""
