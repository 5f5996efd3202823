"""The store in memory: `perdure.store.base.Store` in dictionaries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from perdure.errors import StoreError, UsageError
from perdure.model.cache import CacheStats
from perdure.model.claim import TAIL_EVENTS, Claims
from perdure.model.event import broken_link, tail_of
from perdure.model.filter import Fact, StoreStats
from perdure.model.run import Message, RunRow, Tombstone
from perdure.model.status import GOING_ON, TERMINAL, Status
from perdure.model.write import (
    COMMITTED,
    Append,
    Closed,
    Conflict,
    Counted,
    Create,
    Existing,
    Failed,
    Missing,
    Outcome,
    Outdated,
    Purge,
    Send,
    SetQueue,
    Upgrade,
)
from perdure.store.base import Capabilities
from perdure.store.catalog.memory import MemoryCatalog
from perdure.store.clock import system_clock
from perdure.store.column import check_row, check_values
from perdure.store.instrumented import Instrumented
from perdure.store.memory.lease import Leases
from perdure.store.memory.lines import Lines
from perdure.store.memory.listing import by_status, due, matches
from perdure.store.settle import run_of
from perdure.store.upgrade import refusal, upgrade_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.model.claim import ClaimRequest
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter
    from perdure.model.run import Heartbeat, WorkerRow
    from perdure.model.write import Write
    from perdure.store.base import Decide, Store, StoreOptions
    from perdure.store.catalog.base import Catalog

_CAPABILITIES = Capabilities("memory", inline=True, durability=("memory",), shared=False)
_WAKEABLE = frozenset({Status.PENDING, Status.WAITING})


def open_store(url: str, options: StoreOptions) -> Store:
    """Return a new, empty store in memory. Its URL asks for no durability, so any mode but ``quorum`` is accepted.

    Raises:
        UsageError: ``quorum`` was asked for.
    """
    if options.durability == "quorum":
        message = f"{url} gives no durability 'quorum'"
        raise UsageError(message, hint="use a database server with replicas")
    return Instrumented(MemoryStore())


class MemoryStore:
    """Dictionaries under a lock.

    What is stored outlives `close`, so that a test can open the same store again, but not the process.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self.capabilities: Capabilities = _CAPABILITIES
        self.quiet_until: Callable[[], int] = int
        """Nothing is known: a look is cheap."""
        self.log_ends: Callable[[], CacheStats] = CacheStats
        """Nothing is remembered: it is all here."""
        self.now: Callable[[], int] = clock or system_clock()
        self._lock = threading.RLock()
        self._is_open = False
        self._runs: dict[str, RunRow] = {}
        self._events: dict[str, list[Event]] = {}
        self._inbox: dict[str, list[Message]] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._tags: dict[str, set[tuple[str, str]]] = {}
        self._leases = Leases(self._runs)
        self._lines = Lines(self._runs)
        self._catalog = MemoryCatalog(self._check, self._lock, self.now, self._runs.values, self._leases.workers)
        self.catalog: Catalog = self._catalog
        """What is known of versions."""

    def open(self) -> None:
        """Allow use."""
        self._is_open = True

    def close(self) -> None:
        """Refuse use until it is opened again."""
        self._is_open = False

    def _check(self) -> None:
        if not self._is_open:
            message = "the store is not open"
            raise UsageError(message)

    # ---- writes ----

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """Apply each write by itself.

        Behind a refused create or append of its run an append has to show that it builds on the log that is there.
        """
        self._check()
        if not self._lock.acquire(blocking=block):
            return None
        try:
            doubtful: set[str] = set()
            outcomes = []
            for write in batch:
                try:
                    outcome = self._write(write, doubtful)
                except (StoreError, UnicodeError, OverflowError, TypeError, IndexError) as error:
                    outcome = Failed(error)
                if outcome is not COMMITTED and isinstance(write, Append | Create | Upgrade):
                    doubtful.add(run_of(write))
                outcomes.append(outcome)
            return outcomes
        finally:
            self._lock.release()

    def _write(self, write: Write, doubtful: set[str]) -> Outcome:
        match write:
            case Create():
                return self._create(write)
            case Append():
                return self._append(write, doubtful)
            case Send():
                return self._send(write.message)
            case Purge():
                return self._purge(write)
            case Upgrade():
                return self._upgrade(write, doubtful)
            case SetQueue():
                check_values(value for _, value in write.values)
                self._lines.set(write)
                return COMMITTED

    def _create(self, write: Create) -> Outcome:
        row = write.row
        taken = self._runs.get(row.id) or self._tombstones.get(row.id)
        if taken is not None:
            log = self._events.get(row.id, [])[: len(write.events)]
            ours = [event.commit_id for event in log] == [event.commit_id for event in write.events]
            return COMMITTED if ours else Existing(taken)
        if row.owner is not None and self._lines.is_counted(row.queue):
            return Counted(row.queue)
        if (holder := self._lines.holder(row.queue, write.deduplication_key)) is not None:
            return Existing(holder)
        if write.version_count not in (None, count := self.catalog.count()):
            return Outdated(count)
        check_row(row)
        check_values(value for event in write.events for value in event)
        check_values(text for tag in write.tags for text in tag)
        self._runs[row.id] = row
        self._events[row.id] = list(write.events)
        self._inbox[row.id] = []
        self._tags[row.id] = set(write.tags)
        self._lines.created(row, write.deduplication_key)
        return COMMITTED

    def _append(self, write: Append, doubtful: set[str]) -> Outcome:
        if (refused := self._refuses(write, doubtful)) is not None:
            return refused
        row, change = self._runs[write.run_id], write.change
        if change is not None:
            wake_at = change.wake_at
            if row.inbox_n > change.inbox_seen and change.after in _WAKEABLE:
                wake_at = self._soon(wake_at)
            row = row._replace(
                status=change.after, epoch=change.epoch, owner=change.owner, wake_at=wake_at, detail=change.detail,
                updated_at=change.at,
            )  # fmt: skip
            check_row(row)
        check_values(value for event in write.events for value in event)
        tell = None if change is None else change.tell
        if tell is not None:
            check_values(tell)
        self._runs[write.run_id] = row
        if change is not None:
            self._lines.woken(row)
        self._events[write.run_id].extend(write.events)
        self._inbox[write.run_id] = [one for one in self._inbox[write.run_id] if one.n not in write.consumed]
        if tell is not None:
            self._send(tell)
        return COMMITTED

    def _refuses(self, write: Append, doubtful: set[str]) -> Outcome | None:
        """Return the answer to an append that is not to be applied."""
        row, change = self._runs.get(write.run_id), write.change
        if row is None:
            return Conflict(None)
        log, first, last = self._events[write.run_id], write.events[0], write.events[-1]
        tail = len(log)
        if last.seq <= tail and all(log[one.seq - 1].commit_id == one.commit_id for one in (first, last)):
            return COMMITTED
        if first.seq != tail + 1:
            return Conflict(tail)
        if write.run_id in doubtful and broken_link(write.run_id, tail_of(log[-1]), write.events) is not None:
            return Conflict(tail)
        moved = change is not None and (row.status, row.epoch) != (change.before, change.epoch_before)
        return Conflict(tail) if moved else None

    def _upgrade(self, write: Upgrade, doubtful: set[str]) -> Outcome:
        append, change = write.append, write.append.change
        if (refused := self._refuses(append, doubtful)) is None:
            refused = refusal(write, self._runs[append.run_id], append.events[0].seq - 1, self.catalog.count)
        if refused is not None:
            return refused
        assert change is not None  # noqa: S101 - an upgrade always changes the run
        check_values(record := upgrade_row(write, change))
        self._append(append, set())
        row = self._runs[append.run_id]
        row = self._runs[row.id] = row._replace(version_id=write.to_version, workflow_version=write.label)
        self._lines.woken(row)
        self._catalog.upgraded(record)
        return COMMITTED

    def _soon(self, wake_at: int | None) -> int:
        now = self.now()
        return now if wake_at is None else min(wake_at, now)

    def _send(self, message: Message) -> Outcome:
        row = self._runs.get(message.run_id)
        if row is None:
            return Missing(self._tombstones.get(message.run_id))
        if row.status in TERMINAL:
            return Closed(row.status)
        check_values(message)
        wake_at = self._soon(row.wake_at) if row.status in _WAKEABLE else row.wake_at
        self._runs[message.run_id] = row = row._replace(inbox_n=row.inbox_n + 1, wake_at=wake_at)
        self._lines.woken(row)
        self._inbox[message.run_id].append(message._replace(n=row.inbox_n))
        return COMMITTED

    def _purge(self, write: Purge) -> Outcome:
        row = self._runs.get(write.run_id)
        if row is None:
            return Missing(self._tombstones.get(write.run_id))
        if row.status not in TERMINAL:
            return Closed(row.status)
        check_values(write)
        self._tombstones[row.id] = Tombstone(
            row.id, row.workflow, row.input_digest, row.status, write.at, write.actor, write.reason
        )
        for table in (self._runs, self._events, self._inbox, self._tags):
            del table[row.id]
        return COMMITTED

    # ---- claims and leases ----

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:  # noqa: ARG002
        """Claim due runs, in the order of their queues."""
        self._check()
        with self._lock:
            now = self.now()
            if not self._leases.is_live(request.worker_id):
                return Claims([])
            gone_since = self._leases.gone_since
            rows = self._lines.choose(request, now, lambda row: self._may_claim(row, request, now), gone_since)
            claimed = [decide(row, tuple(self._events[row.id][-TAIL_EVENTS:]), now) for row in rows]
            for one in claimed:
                outcome = self._append(one.append, set())
                if outcome is not COMMITTED:
                    message = "a claim does not fit the run it was made for"
                    raise StoreError(message, run_id=one.row.id)
                if one.bound is not None:
                    version_id, label = one.bound
                    held = self._runs[one.row.id]
                    self._runs[one.row.id] = held._replace(version_id=version_id, workflow_version=label)
                if not (one.parked or one.returned):
                    self._lines.claimed(one.row, one.row.epoch + 1, now)
            return Claims(claimed, self._lines.held, self._lines.open_at)

    def _may_claim(self, row: RunRow, request: ClaimRequest, now: int) -> bool:
        wanted = row.queue in request.queues if request.only is None else row.id == request.only
        if not wanted or row.code not in request.codes:
            return False
        if row.owner is None:
            return row.wake_at is not None and row.wake_at <= now
        return request.take_over and self._leases.gone_since(row.owner) is not None

    def register(self, worker: WorkerRow) -> None:
        """Insert a worker."""
        self._check()
        with self._lock:
            self._leases.register(worker)

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend or end a live worker's lease."""
        self._check()
        with self._lock:
            return self._leases.heartbeat(worker_id, lease_us, self.now())

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return run id to (epoch, inbox_n) of what a worker owns."""
        self._check()
        with self._lock:
            return self._leases.owned(worker_id)

    def sweep(self) -> list[str]:
        """Mark workers whose lease has ended as dead; forget those that own nothing."""
        self._check()
        with self._lock:
            return self._leases.sweep(self.now())

    # ---- reads ----

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """Return a run, what a purged one left, or None."""
        self._check()
        with self._lock:
            return self._runs.get(run_id) or self._tombstones.get(run_id)

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that are neither ended nor parked."""
        self._check()
        with self._lock:
            found = [self._runs[run_id] for run_id in dict.fromkeys(run_ids) if run_id in self._runs]
            return [row.id for row in found if row.status in GOING_ON]

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return a part of a run's log."""
        self._check()
        with self._lock:
            events = self._events.get(run_id, [])[after:]
            return events if limit is None else events[:limit]

    def inbox(self, run_id: str) -> list[Message]:
        """Return the messages that wait."""
        self._check()
        with self._lock:
            return list(self._inbox.get(run_id, []))

    def list(self, query: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        self._check()
        with self._lock:
            rows = [row for row in self._runs.values() if matches(row, self._tags[row.id], query)]
        rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
        return rows[: max(query.limit, 0)]

    def stats(self) -> StoreStats:
        """Count what there is."""
        self._check()
        with self._lock:
            now = self.now()
            rows = list(self._runs.values())
            workers = tuple(sorted(self._leases.workers(), key=lambda worker: worker.id))
            facts = (Fact("store", "memory: gone with the process"),)
            return StoreStats(by_status(rows), due(rows, now), workers, facts, self._lines.states(now))

    def change_count(self) -> int:
        """Nobody else can write here."""
        self._check()
        return 0
