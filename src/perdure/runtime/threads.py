"""Threads for sync steps: a pool that grows on demand. Results reach the loop in one hop however many they are."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    Done = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """Daemon threads, at most ``limit``; started when there is work and none is free."""

    def __init__(self, name: str, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._limit = limit
        self._loop = loop
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._results: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._hop = threading.Lock()
        self._hopping = False

    @property
    def busy(self) -> int:
        """Calls queued or under way."""
        return self._busy

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Have ``call`` made on a thread and ``done(result, error)`` called on the loop. Call on the loop's thread."""
        self._busy += 1
        self._calls.put((call, done))
        if self._busy > len(self._threads) < self._limit:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, wait_s: float) -> None:
        """Let idle threads end; give busy ones ``wait_s`` seconds in all; they cannot be stopped."""
        for _ in self._threads:
            self._calls.put(None)
        if self._busy == 0:
            for thread in self._threads:
                thread.join(timeout=wait_s)
        self._threads.clear()

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - handed to whoever submitted the call
                error = raised
            self._hand_over(done, result, error)
            del call, done, result, error, item  # keep nothing alive while waiting

    def _hand_over(self, done: Done, result: Any, error: BaseException | None) -> None:
        with self._hop:
            self._results.append((done, result, error))
            if self._hopping:
                return
            self._hopping = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return  # the loop is closed: the process is on its way out, and nothing can be recorded any more

    def _deliver(self) -> None:
        with self._hop:
            results, self._results = self._results, deque()
            self._hopping = False
        for done, result, error in results:
            self._busy -= 1
            done(result, error)
