"""A thread for calls of a store that may take long, beside an event loop."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreUnavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_JOIN_S = 10.0


class StoreThread:
    """A daemon thread that makes blocking calls one after another. Started with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stopped: bool = False
        """Whether it takes no more calls."""
        self._left = False
        """Nobody waits for its end any more, and the store was closed under it."""

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` made on the thread.

        Raises:
            StoreUnavailable: the thread was stopped: whoever comes late must not start it again.
        """
        if self.stopped:
            raise _closed()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(call)

    def call(self, loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Have ``function(*args)`` called on the thread and return a future of ``loop`` for its result."""
        future = loop.create_future()

        def work() -> None:
            try:
                result, error = function(*args), None
            except BaseException as raised:  # noqa: BLE001 - handed to whoever awaits
                result, error = None, _closed() if self._left else raised
            loop.call_soon_threadsafe(_resolve, future, result, error)

        try:
            self.post(work)
        except StoreUnavailable as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """End the thread once it has made the calls it has. There is no way back."""
        self.stopped = True
        if self._thread is not None:
            self._calls.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join(_JOIN_S)
                self._left = True
            self._thread = None

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the database is closed")


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
