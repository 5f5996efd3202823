"""The connections of a process to a server: each has one purpose, one user at a time, and is made anew when lost.

INV-1  A connection that is in doubt is closed, never lent again.
INV-2  Nobody waits for a connection behind somebody with another purpose: what keeps a lease has its own.
INV-3  A child of fork uses none of its parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic

from perdure.errors import UsageError
from perdure.store.server.dialect import L, LinkLost


class Links(Generic[L]):
    """See the module. Every connection is made when it is first needed."""

    def __init__(self, connect: Callable[[str, float], L], deadline_s: float) -> None:
        self._connect = connect
        self._deadline_s = deadline_s
        self._pid = os.getpid()
        self._links: dict[str, L] = {}
        self._locks = {purpose: threading.Lock() for purpose in ("write", "work", "lease")}
        self._closed = False

    @contextmanager
    def lend(self, purpose: str, deadline_s: float | None = None) -> Iterator[L]:
        """Lend the connection for a purpose, outside of a transaction; what is left open is undone afterwards.

        Args:
            purpose: ``write`` for batches, ``lease`` for what keeps a worker alive, ``work`` for all else.
            deadline_s: how long one call may take.

        Raises:
            StoreUnavailable: there is none to be had now.
            UsageError: after `close`, and in a child of fork.
        """
        self._check()
        with self._locks[purpose]:
            self._check()
            limit = deadline_s or self._deadline_s
            link = self._links.get(purpose)
            if link is not None and not link.usable:
                self._drop(purpose)
                link = None
            if link is None:
                link = self._links[purpose] = self._connect(purpose, limit)
            link.deadline_s = limit
            try:
                yield link
            except BaseException:
                self._clean(purpose, link)
                raise
            if not link.usable:
                self._drop(purpose)

    @contextmanager
    def try_lend(self, purpose: str) -> Iterator[L | None]:
        """Lend a connection that is there and not in use, else None."""
        self._check()
        lock = self._locks[purpose]
        if not lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self._links.get(purpose)
        finally:
            lock.release()

    def take(self, purpose: str) -> L | None:
        """Return a connection that is there and not in use, to be given back by `give_back`; else None."""
        self._check()
        lock = self._locks[purpose]
        if not lock.acquire(blocking=False):
            return None
        link = self._links.get(purpose)
        if link is None or not link.usable or self._closed:
            lock.release()
            return None
        link.deadline_s = self._deadline_s
        return link

    def give_back(self, purpose: str) -> None:
        """Let others have a connection that was taken. What is left open in it is undone by whoever has it next."""
        self._locks[purpose].release()

    def reserve(self, *purposes: str) -> None:
        """Make connections before they are needed: later there may be none left to be had.

        Raises:
            StoreUnavailable: there is none to be had now.
        """
        for purpose in purposes:
            with self.lend(purpose):
                pass

    def _clean(self, purpose: str, link: L) -> None:
        try:
            link.rollback()
        except LinkLost:
            pass
        except BaseException:
            self._drop(purpose)
            raise
        if not link.usable:
            self._drop(purpose)

    def _drop(self, purpose: str) -> None:
        self._links.pop(purpose).close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            message = "the store was opened before a fork and cannot be used in the child"
            raise UsageError(message, hint="open it after the fork")
        if self._closed:
            message = "the store is closed"
            raise UsageError(message)

    def close(self) -> None:
        """Let all connections go; in a child of fork only forget them."""
        self._closed = True
        if self._pid != os.getpid():
            return
        for purpose, lock in self._locks.items():
            with lock:
                if purpose in self._links:
                    self._drop(purpose)
