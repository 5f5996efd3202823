"""`perdure.store.base.Store` on a database server."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from perdure.errors import StoreUnavailable, UsageError
from perdure.model.claim import Claims
from perdure.model.run import Heartbeat
from perdure.model.write import Append, Blocked
from perdure.store.catalog.sql import SqlCatalog
from perdure.store.server import lease, listing
from perdure.store.server.book import ServerBook, inbox, run_row, tombstone
from perdure.store.server.catalog import ServerGround
from perdure.store.server.claim import LATE, Claiming, Known, Outlook
from perdure.store.server.clock import ServerClock
from perdure.store.server.commit import Committing, Promise
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost
from perdure.store.server.flight import ServerFlight
from perdure.store.server.hint import Hints
from perdure.store.server.links import Links
from perdure.store.settle import has_happened, is_text, run_of
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.model.cache import CacheStats
    from perdure.model.claim import ClaimRequest
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter, StoreStats
    from perdure.model.run import Message, RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Capabilities, Decide, Flight, StoreOptions
    from perdure.store.catalog.base import Catalog

_TURNS = 6
"""How often a transaction that got into a deadlock is tried."""
_LONGEST_BLIND_US = 10_000_000
"""A sweep that knows when the next lease ends looks at least this often: a shorter one may have begun since."""
_PATIENCE_US = 10_000_000
"""How long a look at what is due is trusted."""
_SHORTEST_BEAT_S = 0.3
_BLIND_S = 2.0
"""Where no hints come, everything is taken to have changed after this time."""
R = TypeVar("R")


class ServerStore(Generic[L]):
    """One database of a server. May be called from any thread."""

    def __init__(self, dialect: Dialect[L], options: StoreOptions, clock: ServerClock | None = None) -> None:
        self._dialect = dialect
        self._options = options
        self._clock = clock or ServerClock()
        self.capabilities: Capabilities = dialect.capabilities
        self.now: Callable[[], int] = self._clock.now
        """Return the time on the server's clock, as far as it is known here."""
        ground = ServerGround[L](self._read, lambda work: self._transact("work", lambda link, _: work(link)))
        self.catalog: Catalog = SqlCatalog(ground, self._clock.now)
        """What is known of versions."""
        self._links: Links[L] | None = None
        self._tails: Tails = Tails()
        self.log_ends: Callable[[], CacheStats] = self._tails.stats
        self._known = Known(self._tails)
        self._blocked: frozenset[str] = frozenset()
        """Runs that somebody else was in the way of when a write of theirs was tried last."""
        self._next_sweep = 0
        self._changed_at = 0.0
        self._hints: Hints | None = None
        self._hints_come = False
        self._changes = 0
        """Hints of other processes, of all connections so far."""
        self._heard = 0
        """Of these, those of the connection there is."""
        self._writes = 0
        """Batches of this process after which something may be due."""
        self._beats = lease.Beats()
        self._quiet_until = 0
        self.quiet_until: Callable[[], int] = lambda: self._quiet_until
        """Return until when nothing will be due of which no hint comes."""

    def open(self) -> None:
        """Connect, migrate, check what the server gives, and learn its clock."""
        if self._links is not None:
            return
        options = self._options
        links: Links[L] = Links(self._connect, options.busy_timeout_s)
        try:
            with links.lend("work") as link:
                self._dialect.prepare(link, migrate=options.migrate, create=options.create, read_only=options.read_only)
                self._clock.hear(int(link.execute("clock").rows[0][0]))
            if not options.read_only:
                links.reserve("write")
        except BaseException:
            links.close()
            raise
        self._links = links
        self.capabilities = self._dialect.capabilities._replace(hints=self._hints_come)
        if self._hints_come:
            self._hints = Hints(self._send_hint)

    def _connect(self, purpose: str, deadline_s: float) -> L:
        link = self._dialect.connect(self._clock, deadline_s)
        self._tails.clear()  # a server that comes back may have lost what was committed last
        if purpose == "work":
            try:
                self._hints_come = self._dialect.listen(link)
            except BaseException:
                link.close()
                raise
            self._changes += 1  # what was said while nobody listened is not known
        return link

    def close(self) -> None:
        """Release everything."""
        links, self._links = self._links, None
        hints, self._hints = self._hints, None
        if hints is not None:
            hints.stop()
        if links is not None:
            links.close()
        self._tails.clear()

    def _opened(self) -> Links[L]:
        links = self._links
        if links is None:
            message = "the store is not open"
            raise UsageError(message)
        return links

    # ---- transactions ----

    def _transact(
        self, purpose: str, work: Callable[[L, Promise], R], promised: Callable[[Promise], R] | None = None
    ) -> R:
        """Do ``work``, which commits, and return its result; see what became of it if the answer to COMMIT is lost.

        Args:
            purpose: of the connection.
            work: called with the connection and a promise to fill in before the commit; called again after a deadlock.
            promised: makes the result of a promise whose transaction was committed.

        Raises:
            StoreUnavailable: nothing was recorded; or there is no telling (``unknown``).
        """
        turn = 0
        while True:
            turn += 1
            promise = Promise()
            try:
                with self._opened().lend(purpose) as link:
                    return work(link, promise)
            except LinkLost as lost:
                self._tails.clear()
                if not lost.committing or promised is None:
                    raise
                if self._find_out(purpose, promise, lost):
                    return promised(promise)
                message = "the connection was lost at COMMIT: nothing was recorded"
                raise StoreUnavailable(message) from lost
            except Exception as error:
                self._tails.clear()
                if self._dialect.fault(error) not in (Fault.AGAIN, Fault.BLOCKED) or turn >= _TURNS:
                    raise
                time.sleep(random.random() * 0.005 * 2**turn)

    def _read(self, work: Callable[[L], R]) -> R:
        """Do ``work``, which only reads; once more if the connection turns out to be gone, as after a restart."""
        try:
            with self._opened().lend("work") as link:
                return work(link)
        except LinkLost:
            with self._opened().lend("work") as link:
                return work(link)

    def _find_out(self, purpose: str, promise: Promise, lost: LinkLost) -> bool:
        """Say whether a transaction is there, by our own ids, through a new connection."""
        try:
            with self._opened().lend(purpose) as link:
                if lost.session:
                    self._dialect.end_session(link, lost.session)
                link.begin()
                done = has_happened(ServerBook(self._dialect, link), promise.writes, promise.outcomes)
                self._dialect.seal(link)
                link.commit()
        except Exception as second:
            message = f"the connection was lost at COMMIT ({lost}), and the database cannot be asked what it did"
            raise StoreUnavailable(message, unknown=True) from second
        if done is None:
            message = f"the connection was lost at COMMIT ({lost}), and what it did is not known"
            raise StoreUnavailable(message, unknown=True) from lost
        return done

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """Apply ``batch`` in one transaction and answer each write in order. There is no commit without a wait."""
        if not block or not batch:
            self._opened()
            return [] if block else None
        return self._commit(batch)

    def send(self, batch: Sequence[Write]) -> Flight | None:
        """Have a batch on its way; None if its connection is not there now, or somebody is known to be in the way."""
        links = self._opened()
        link = None if self._is_blocked(batch) else links.take("write")
        if link is None:
            return None

        def over(error: Exception | None) -> None:
            links.give_back("write")
            self._beats.stirs += 1
            if error is None:
                self._tell(batch)
            else:
                self._tails.clear()

        return ServerFlight(len(batch), partial(self._dialect.send, link, batch, self._tails), over)

    def land(self, batch: Sequence[Write], flight: Flight) -> list[Outcome]:
        """Find out what became of a batch, and commit what was not."""
        return self._commit(batch, flight.error)

    def _is_blocked(self, batch: Sequence[Write]) -> bool:
        return bool(self._blocked) and any(run_of(write) in self._blocked for write in batch)

    def _commit(self, batch: Sequence[Write], failed: Exception | None = None) -> list[Outcome]:
        work = Committing(self._dialect, batch, self._tails, failed)
        work.hurry = self._is_blocked(batch)
        try:
            outcomes = self._transact("write", work, lambda promise: list(promise.outcomes))
        finally:
            self._beats.stirs += 1
        if work.hurry:
            self._note_blocked(batch, outcomes)
        self._tell(batch)
        return outcomes

    def _note_blocked(self, batch: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        """Remember what to try in a hurry the next time: who was in the way may still be."""
        found = {outcome.run_id for outcome in outcomes if isinstance(outcome, Blocked)}
        self._blocked = self._blocked.difference(map(run_of, batch)).union(found)

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:
        """Claim due runs in one short transaction."""
        if not block:
            self._opened()
            return None
        claiming = Claiming(self._dialect, self._clock, request, decide, self._known)

        def work(link: L, promise: Promise) -> Claims:
            before = self._writes
            answer = claiming(link, promise)
            self._note(answer, claiming.outlook, before)
            return answer

        try:
            answer = self._transact("work", work, lambda _: claiming.answer)
        finally:
            self._beats.stirs += claiming.outlook.due
        # Known only now: what a claim that fails has appended is in no log.
        self._tails.update({one.append.run_id: one.append.events[-1].seq for one in answer.taken})
        return answer

    def _note(self, answer: Claims, outlook: Outlook, before: int) -> None:
        """Note until when nothing will be due, or be let go by its queue, of which no hint comes.

        Args:
            answer: what a claim took, or why not.
            outlook: what was due, and when more will be.
            before: how many batches this process had written when it looked: what it wrote since may be due earlier.
        """
        # What was due and neither taken nor held by its queue, somebody else was just claiming: he may fail.
        quiet = not answer.taken and before == self._writes and (answer.held or not outlook.due)
        opens = LATE if answer.open_at is None else answer.open_at
        self._quiet_until = min(outlook.then, opens, self._clock.now() + _PATIENCE_US) if quiet else 0

    # ---- workers ----

    def register(self, worker: WorkerRow) -> None:
        """Insert the row of a worker that begins its life, which has a connection of its own to keep its lease."""
        self._opened().reserve("lease")
        with self._opened().lend("work") as link:
            lease.register(link, worker)

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend a live worker's lease."""
        limit = self._options.busy_timeout_s
        if lease_us > 0:
            limit = min(limit, max(_SHORTEST_BEAT_S, lease_us / 3_000_000))
        with self._opened().lend("lease", limit) as link:
            return self._beats.beat(self._dialect, link, worker_id, lease_us)

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return run id to (epoch, inbox_n) of every run the worker owns."""
        return self._read(lambda link: lease.as_owned(link.execute("owned", worker_id).rows))

    def sweep(self) -> list[str]:
        """Mark workers whose lease has ended as dead. Asks only when a lease that is known may have ended."""
        links, now = self._opened(), self._clock.now()
        if now < self._next_sweep:
            return []
        with links.lend("work") as link:
            due, first, self._beats.fleet = link.execute("sweep_due").rows[0]
            now = self._clock.now()
            later = now + _LONGEST_BLIND_US
            self._next_sweep = min(later, int(first)) if first is not None else later
            if not due:
                return []
            self._next_sweep = 0
            dead = lease.sweep(link, now)
        if dead and self._hints is not None:
            self._hints.announce()
        return dead

    # ---- reads ----

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """Return a run, what a purged one left, or None."""
        self._opened()
        if not is_text(run_id):
            return None
        return self._read(lambda link: run_row(link, run_id) or tombstone(link, run_id))

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that are neither ended nor parked."""
        self._opened()
        asked = tuple(run_id for run_id in run_ids if is_text(run_id))
        if not asked:
            return []
        return self._read(lambda link: [row[0] for row in link.execute("going_on", asked).rows])

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return a part of a run's log."""
        self._opened()
        if not is_text(run_id):
            return []
        return self._read(lambda link: listing.load(link, run_id, after, limit))

    def inbox(self, run_id: str) -> list[Message]:
        """Return the messages that wait."""
        self._opened()
        if not is_text(run_id):
            return []
        return self._read(lambda link: inbox(link, run_id))

    def list(self, query: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        return self._read(lambda link: listing.listing(link, self._dialect.sql, query))

    def stats(self) -> StoreStats:
        """Count what there is, and say what this database really is."""

        def look(link: L) -> StoreStats:
            return listing.stats(link, self._dialect.facts(link), self._clock.now())

        return self._read(look)

    def sees(self, mark: int) -> bool:
        """Whether somebody holds the lock with this number here."""
        return self._read(lambda link: bool(link.execute("sees", mark).rows[0][0]))

    def change_count(self) -> int:
        """Return a number that changes when a hint of another process has come; without hints, now and then."""
        if not self._hints_come:
            self._opened()
            now = time.monotonic()
            if now - self._changed_at >= _BLIND_S * self._beats.patience:
                self._changed_at = now
                self._changes += 1
            return self._changes
        with self._opened().try_lend("work") as link:
            if link is not None:
                heard = link.heard()
                if heard != self._heard:
                    self._changes += 1
                    self._heard = heard
            if link is None or not link.usable:
                self._quiet_until = 0  # in use, or gone: then nobody listens
        return self._changes

    def _send_hint(self) -> None:
        with self._opened().lend("work") as link:
            self._dialect.hint(link)

    def _tell(self, batch: Sequence[Write]) -> None:
        """Tell others of a batch, if it has anything that somebody may wait for."""
        if all(isinstance(write, Append) and write.change is None for write in batch):
            return
        self._writes += 1
        self._quiet_until = 0
        if self._hints is not None:
            self._hints.announce()
