"""Sync workflow bodies: the body runs on a thread of its own and trades places with the run's loop.

Only one of the two runs at a time. While the thread runs, the run holds all deliveries; when the body asks for
something it waits, and the loop carries out the request in the root task, where it gets its id like any other. So a
sync body has the same log and the same rules as an async one.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any

from perdure.kernel.scope import CURRENT, Evicted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from perdure.kernel.execution import Execution

    Request = Callable[[], Coroutine[Any, Any, Any]]


class Bridge:
    """Between one sync body's thread and its run's loop."""

    def __init__(self, body: Callable[[], Any], loop: asyncio.AbstractEventLoop, hold: Callable[[int], None]) -> None:
        self._body = body
        self._loop = loop
        self._hold = hold
        self._run: Execution | None = None
        self._turn = threading.Semaphore(0)
        self._answer: tuple[Any, BaseException | None] = (None, None)
        self._next: asyncio.Future[Any] | None = None
        self._thread: threading.Thread | None = None
        self._dead = False

    async def drive(self) -> Any:
        """Be the root task: start the thread, carry out what it asks for, return what it returns."""
        thread = self._thread = threading.Thread(target=self._main, name=f"perdure-body-{self.run.run_id}", daemon=True)
        future = self._await_request()
        thread.start()
        while True:
            request, result, error = await future
            if request is None:
                if error is not None:
                    raise error
                return result
            try:
                self._answer = (await request(), None)
            except Evicted:
                raise
            except BaseException as raised:  # noqa: BLE001 - the body decides what becomes of it, cancellation included
                self._answer = (None, raised)
            future = self._await_request()
            self._turn.release()

    @property
    def run(self) -> Execution:
        """The run whose body this is."""
        assert self._run is not None  # noqa: S101 - set before anything runs
        return self._run

    @property
    def has_turn(self) -> bool:
        """Whether the body's thread is at work, and the loop waits for it."""
        return self._next is not None

    def attach(self, run: Execution) -> None:
        """Tie the bridge to its run."""
        self._run = run
        run.bridge = self

    def _await_request(self) -> asyncio.Future[Any]:
        self._hold(1)
        self._next = self.run.loop.create_future()
        return self._next

    # -- on the body's thread ------------------------------------------------------------------------------------

    def _main(self) -> None:
        context = contextvars.Context()
        context.run(CURRENT.set, self._run)
        try:
            result, error = context.run(self._body), None
        except Evicted:
            return
        except BaseException as raised:  # noqa: BLE001 - becomes the outcome of the run
            result, error = None, raised
        if not self._dead:
            self._post((None, result, error))

    def call(self, request: Request) -> Any:
        """Have ``request`` awaited in the run's root task, and wait for its result."""
        if self._dead or threading.current_thread() is not self._thread:
            self.run.check_alive()
            message = "an operation of a sync workflow was called on another thread than that of its body"
            raise RuntimeError(message)
        self._post((request, None, None))
        self._turn.acquire()
        if self._dead:
            raise Evicted
        result, error = self._answer
        self._answer = (None, None)
        if error is not None:
            raise error
        return result

    def mark(self, kind: Any, name: str, value: Any, *, store_none: bool) -> Any:
        """Record a marker and wait for it; there is nobody who could await it later."""

        async def request() -> None:
            await self.run.mark_now(kind, name, value, store_none=store_none)

        self.call(request)
        return DONE

    def _post(self, message: tuple[Request | None, Any, BaseException | None]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived, message)
        except RuntimeError:
            raise Evicted from None  # the engine's loop is closed

    # -- on the engine's loop ------------------------------------------------------------------------------------

    def _arrived(self, message: tuple[Request | None, Any, BaseException | None]) -> None:
        if self._dead or self._next is None:
            return
        future, self._next = self._next, None
        future.set_result(message)
        self._hold(-1)

    def kill(self) -> None:
        """Unwind the body's thread; it ends at its next operation, if it is not waiting in one."""
        self._dead = True
        self._turn.release()


class _Done:
    """An awaitable that is done, so that ``await perdure.checkpoint()`` and a plain call look the same."""

    def __await__(self) -> Any:
        return iter(())


DONE = _Done()
