"""The wrapper around every backend: driver errors become `StoreError`, calls are counted and timed.

The one place where an error of a driver is translated; the backend says what it means, here it is raised, with the
driver's own error as its cause.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from perdure.store.catalog.instrumented import InstrumentedCatalog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.model.cache import CacheStats
    from perdure.model.claim import ClaimRequest, Claims
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter, StoreStats
    from perdure.model.run import Heartbeat, Message, RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Capabilities, Decide, Flight, Joinable, Sender, Store
    from perdure.store.catalog.base import Catalog

P = ParamSpec("P")
R = TypeVar("R")


class Instrumented:
    """A store that counts.

    Attributes:
        inner: the backend itself.
        now: the backend's clock, unwrapped: it is asked too often to be counted.
    """

    def __init__(self, inner: Store, translate: Callable[[Exception], Exception | None] | None = None) -> None:
        self.inner = inner
        self.capabilities: Capabilities = inner.capabilities
        self.now: Callable[[], int] = inner.now
        self.quiet_until: Callable[[], int] = inner.quiet_until
        self.log_ends: Callable[[], CacheStats] = inner.log_ends
        self.catalog: Catalog = InstrumentedCatalog(inner.catalog, self._call)
        self._translate = translate
        self._counts: dict[str, list[float]] = {}
        self._commits = 0
        self._commit_seconds = 0.0
        self._writes = 0
        self._refused = 0

    def counters(self) -> dict[str, float]:
        """Return what was counted so far: ``<call>_calls``, ``<call>_seconds``; for commits also ``commit_writes``."""
        counted: dict[str, float] = {
            "commit_calls": self._commits,
            "commit_seconds": self._commit_seconds,
            "commit_writes": self._writes,
            "commit_busy": self._refused,
        }
        for name, (calls, seconds) in self._counts.items():
            counted[f"{name}_calls"] = calls
            counted[f"{name}_seconds"] = seconds
        return counted

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """See `perdure.store.base.Store.commit`."""
        began = perf_counter()
        try:
            outcomes = self.inner.commit(batch, block=block)
        except Exception as error:
            self._raise(error)
            raise
        self._count_commit(perf_counter() - began, None if outcomes is None else len(batch))
        return outcomes

    def send(self, batch: Sequence[Write]) -> Flight | None:
        """See `perdure.store.base.Sender.send`."""
        began = perf_counter()
        try:
            flight = cast("Sender", self.inner).send(batch)
        except Exception as error:
            self._raise(error)
            raise
        if flight is not None:
            flight.landed = lambda: self._count_commit(perf_counter() - began, len(batch))
        return flight

    def land(self, batch: Sequence[Write], flight: Flight) -> list[Outcome]:
        """See `perdure.store.base.Sender.land`."""
        began = perf_counter()
        try:
            outcomes = cast("Sender", self.inner).land(batch, flight)
        except Exception as error:
            self._raise(error)
            raise
        self._count_commit(perf_counter() - began, len(batch))
        return outcomes

    def _count_commit(self, seconds: float, writes: int | None) -> None:
        self._commits += 1
        self._commit_seconds += seconds
        if writes is None:
            self._refused += 1
        else:
            self._writes += writes

    def _raise(self, error: Exception) -> None:
        """Raise what ``error`` means; return if it is to be raised as it is."""
        translated = self._translate(error) if self._translate is not None else None
        if translated is not None:
            raise translated from error

    def _call(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        began = perf_counter()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._raise(error)
            raise
        finally:
            count = self._counts.setdefault(name, [0, 0.0])
            count[0] += 1
            count[1] += perf_counter() - began

    def open(self) -> None:
        """See `perdure.store.base.Store.open`."""
        self._call("open", self.inner.open)
        self.capabilities = self.inner.capabilities

    def close(self) -> None:
        """See `perdure.store.base.Store.close`."""
        self._call("close", self.inner.close)

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:
        """See `perdure.store.base.Store.claim`."""
        return self._call("claim", self.inner.claim, request, decide, block=block)

    def register(self, worker: WorkerRow) -> None:
        """See `perdure.store.base.Store.register`."""
        self._call("register", self.inner.register, worker)

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """See `perdure.store.base.Store.heartbeat`."""
        return self._call("heartbeat", self.inner.heartbeat, worker_id, lease_us)

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """See `perdure.store.base.Store.owned`."""
        return self._call("owned", self.inner.owned, worker_id)

    def sweep(self) -> list[str]:
        """See `perdure.store.base.Store.sweep`."""
        return self._call("sweep", self.inner.sweep)

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """See `perdure.store.base.Store.get`."""
        return self._call("get", self.inner.get, run_id)

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """See `perdure.store.base.Store.going_on`."""
        return self._call("going_on", self.inner.going_on, run_ids)

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """See `perdure.store.base.Store.load`."""
        return self._call("load", self.inner.load, run_id, after, limit)

    def inbox(self, run_id: str) -> list[Message]:
        """See `perdure.store.base.Store.inbox`."""
        return self._call("inbox", self.inner.inbox, run_id)

    def list(self, query: RunFilter) -> list[RunRow]:
        """See `perdure.store.base.Store.list`."""
        return self._call("list", self.inner.list, query)

    def stats(self) -> StoreStats:
        """See `perdure.store.base.Store.stats`."""
        return self._call("stats", self.inner.stats)

    def change_count(self) -> int:
        """See `perdure.store.base.Store.change_count`."""
        return self._call("change_count", self.inner.change_count)

    def sees(self, mark: int) -> bool:
        """See `perdure.store.base.Joinable.sees`."""
        return self._call("sees", cast("Joinable", self.inner).sees, mark)
