"""A store that fails where it is told to: every call is a boundary, every boundary can fail in six ways.

    faulty = FaultyStore(store)
    ... run something ...
    for n in range(1, faulty.boundaries + 1):
        for fault in Fault:
            ... run it again with FaultyStore(store, at=n, fault=fault), then without, and compare ...

`Crash` is a `BaseException`: what the process had in memory must not survive it. `Fault.ERROR_AFTER` is the nasty one:
the write is there and the caller is told that nobody knows.
"""

from __future__ import annotations

import asyncio
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from perdure.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from perdure.model.cache import CacheStats
    from perdure.model.claim import ClaimRequest, Claims
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter, StoreStats
    from perdure.model.run import Heartbeat, Message, RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Capabilities, Decide, Joinable, Store
    from perdure.store.catalog.base import Catalog

P = ParamSpec("P")
R = TypeVar("R")


class Crash(BaseException):
    """The process is gone, as far as the code under test is concerned."""


class Fault(StrEnum):
    """How a boundary fails."""

    CRASH_BEFORE = "crash_before"
    """The process dies; nothing was done."""
    CRASH_AFTER = "crash_after"
    """It was done; the process dies before anybody knows."""
    ERROR_BEFORE = "error_before"
    """Nothing was done, and the caller is told so: `StoreUnavailable`."""
    ERROR_AFTER = "error_after"
    """It was done, and the caller is told that it is unknown: `StoreUnavailable` with ``unknown=True``."""
    CANCEL = "cancel"
    """It was done; the task that waits for it is cancelled."""
    TWICE = "twice"
    """It is done twice, as by a retrying proxy; the caller gets the second answer."""


WRITING = frozenset({"commit", "claim", "register", "heartbeat", "sweep"})
READING = frozenset({"get", "load", "inbox", "list", "stats", "owned", "going_on"})


class FaultyStore:
    """Wrap a store and let its ``at``-th boundary fail.

    Args:
        inner: the store that does the work.
        at: number of the boundary that fails, from 1; 0 for none.
        fault: how it fails.
        repeat: let every boundary from ``at`` on fail.
        only: names of the calls that count as boundaries; by default all that write or read.

    Attributes:
        boundaries: how many there were so far.
        trace: their names, in order.
        injected: how many have failed. A campaign asserts that this is not 0.
    """

    def __init__(
        self,
        inner: Store,
        *,
        at: int = 0,
        fault: Fault = Fault.CRASH_BEFORE,
        repeat: bool = False,
        only: Iterable[str] = WRITING | READING,
    ) -> None:
        self.inner = inner
        self.capabilities: Capabilities = inner.capabilities._replace(sends=False)  # a boundary is a call
        self.catalog: Catalog = inner.catalog
        self.now: Callable[[], int] = inner.now
        self.quiet_until: Callable[[], int] = inner.quiet_until
        self.log_ends: Callable[[], CacheStats] = inner.log_ends
        self.at = at
        self.fault = fault
        self.repeat = repeat
        self.trace: list[str] = []
        self.injected: int = 0
        self.on_fault: Callable[[], None] | None = None
        """Called just before a boundary fails, for tests that stop other parts at that moment."""
        self._only = frozenset(only)
        self._lock = threading.Lock()

    @property
    def boundaries(self) -> int:
        """How many boundaries there were so far."""
        return len(self.trace)

    def _cross(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if name not in self._only:
            return function(*args, **kwargs)
        with self._lock:
            self.trace.append(name)
            number = len(self.trace)
            hit = self.at > 0 and (number == self.at or (self.repeat and number > self.at))
            self.injected += hit
        if not hit:
            return function(*args, **kwargs)
        if self.on_fault is not None:
            self.on_fault()
        return self._fail(name, function, *args, **kwargs)

    def _fail(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self.fault is Fault.CRASH_BEFORE:
            raise Crash(name)
        if self.fault is Fault.ERROR_BEFORE:
            message = f"injected before {name}"
            raise StoreUnavailable(message)
        function(*args, **kwargs)
        match self.fault:
            case Fault.CRASH_AFTER:
                raise Crash(name)
            case Fault.ERROR_AFTER:
                message = f"injected after {name}"
                raise StoreUnavailable(message, unknown=True)
            case Fault.CANCEL:
                raise asyncio.CancelledError(name)
            case _:
                return function(*args, **kwargs)

    def open(self) -> None:
        """Open the wrapped store. Not a boundary."""
        self.inner.open()

    def close(self) -> None:
        """Close the wrapped store. Not a boundary."""
        self.inner.close()

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """See `perdure.store.base.Store.commit`."""
        return self._cross("commit", self.inner.commit, batch, block=block)

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:
        """See `perdure.store.base.Store.claim`."""
        return self._cross("claim", self.inner.claim, request, decide, block=block)

    def register(self, worker: WorkerRow) -> None:
        """See `perdure.store.base.Store.register`."""
        self._cross("register", self.inner.register, worker)

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """See `perdure.store.base.Store.heartbeat`."""
        return self._cross("heartbeat", self.inner.heartbeat, worker_id, lease_us)

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """See `perdure.store.base.Store.owned`."""
        return self._cross("owned", self.inner.owned, worker_id)

    def sweep(self) -> list[str]:
        """See `perdure.store.base.Store.sweep`."""
        return self._cross("sweep", self.inner.sweep)

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """See `perdure.store.base.Store.get`."""
        return self._cross("get", self.inner.get, run_id)

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """See `perdure.store.base.Store.going_on`."""
        return self._cross("going_on", self.inner.going_on, run_ids)

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """See `perdure.store.base.Store.load`."""
        return self._cross("load", self.inner.load, run_id, after, limit)

    def inbox(self, run_id: str) -> list[Message]:
        """See `perdure.store.base.Store.inbox`."""
        return self._cross("inbox", self.inner.inbox, run_id)

    def list(self, query: RunFilter) -> list[RunRow]:
        """See `perdure.store.base.Store.list`."""
        return self._cross("list", self.inner.list, query)

    def stats(self) -> StoreStats:
        """See `perdure.store.base.Store.stats`."""
        return self._cross("stats", self.inner.stats)

    def change_count(self) -> int:
        """See `perdure.store.base.Store.change_count`. Not a boundary: it says nothing that must be believed."""
        return self.inner.change_count()

    def sees(self, mark: int) -> bool:
        """See `perdure.store.base.Joinable.sees`. Not a boundary."""
        return cast("Joinable", self.inner).sees(mark)
