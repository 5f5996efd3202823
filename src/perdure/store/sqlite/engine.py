"""`perdure.store.base.Store` on one SQLite file."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

import apsw
import msgspec

from perdure.errors import StoreCorrupt, StoreUnavailable, UsageError
from perdure.model.claim import Claims
from perdure.model.run import Heartbeat, Message
from perdure.store import memory
from perdure.store.base import Capabilities
from perdure.store.catalog.sql import SqlCatalog
from perdure.store.instrumented import Instrumented
from perdure.store.settle import Settlement, has_happened, is_text
from perdure.store.sqlite import birth, build, claim, lease, listing, place, schema
from perdure.store.sqlite.batch import apply, fetch, run_row, tombstone
from perdure.store.sqlite.book import SqliteBook
from perdure.store.sqlite.catalog import SqliteGround
from perdure.store.sqlite.clock import Clock, Machine, this_machine
from perdure.store.sqlite.facts import facts
from perdure.store.sqlite.fault import ENVIRONMENT, sound, translate
from perdure.store.sqlite.queues import UNREAD, read_book
from perdure.store.sqlite.session import SYNCHRONOUS, Session
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perdure.model.cache import CacheStats
    from perdure.model.claim import ClaimRequest
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter, StoreStats
    from perdure.model.run import RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Decide, Store, StoreOptions
    from perdure.store.catalog.base import Catalog

R = TypeVar("R")
_CAPABILITIES = Capabilities("sqlite", inline=True, durability=tuple(SYNCHRONOUS), shared=True)
_opening = threading.Lock()
"""Creating a file and opening it is one step for this process: a close in between would drop another store's locks."""


def _renew_lock() -> None:
    """Give a child of fork its own lock: another thread may have held this one, and does not exist there."""
    global _opening  # noqa: PLW0603 - there is one per process by its nature
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _no_telling(_: object) -> None:
    """Answer the question whether something was recorded that carries no id of ours."""


def _conclude(*, done: bool | None) -> None:
    """Raise unless a COMMIT that failed is there all the same.

    Raises:
        StoreUnavailable: always else.
    """
    if done:
        return
    message = "COMMIT failed: nothing was recorded" if done is False else "COMMIT failed, and what it did is not known"
    raise StoreUnavailable(message, unknown=done is None)


def open_store(url: str, options: StoreOptions) -> Store:
    """Return the store a ``sqlite:`` URL names: a file, or for ``sqlite://`` one in memory.

    Raises:
        UsageError: the URL names no file.
    """
    path = place.path_of(url)
    if path is None:
        return memory.open_store(url, options)
    return Instrumented(SqliteStore(path, options), translate)


class SqliteStore:
    """One database file. May be called from any thread."""

    def __init__(self, path: Path, options: StoreOptions, machine: Machine | None = None) -> None:
        self._path = path
        self._options = options
        self._machine = machine or this_machine()
        self._clock = Clock(self._machine)
        self.capabilities: Capabilities = _CAPABILITIES._replace(file=str(path))
        self.now: Callable[[], int] = self._clock.now
        """Return the time on the common clock."""
        self.quiet_until: Callable[[], int] = int
        """Nothing is known: a look is cheap."""
        self.catalog: Catalog = SqlCatalog(SqliteGround(self._opened, self._change), self._clock.now)
        """What is known of versions."""
        self._session: Session | None = None
        self._file = path
        self._identity: tuple[int, int] | None = None
        self._seen_version = 0
        self._tails: Tails = Tails()
        self.log_ends: Callable[[], CacheStats] = self._tails.stats
        self._damaged: set[str] = set()
        """Due runs that cannot be claimed."""
        self._queues = UNREAD
        self._own_version = -1
        """SQLite's count of changes as of our own last commit: equal to it, nothing has changed since."""

    def open(self) -> None:
        """Connect, migrate, check what SQLite gives, and join the file's clock."""
        if self._session is not None:
            return
        build.check(self._options)
        self._forget()
        with _opening:
            while self._session is None:
                self._session = self._try_open()

    def _try_open(self) -> Session | None:
        """Open the file; None if it was replaced meanwhile, so that it has to be done again."""
        options = self._options
        file = place.check(self._path, read_only=options.read_only, must_exist=not options.create)
        created = not options.read_only and birth.create(file)
        session = Session(
            file,
            durability=options.durability,
            busy_timeout_s=options.busy_timeout_s,
            read_only=options.read_only,
            inspect=schema.is_current,
        )
        try:
            if self._connect(session, file):
                return session
        except BaseException:
            session.close()
            if created:
                birth.take_back(file)
            raise
        session.close()
        return None

    def _connect(self, session: Session, file: Path) -> bool:
        """Connect and agree with the file; False if it is no longer in its place."""
        identity = birth.identity(file)
        try:
            session.connect()
            if self._options.read_only:
                self._join_reading(session)
                return True
            session.begin()
            if birth.identity(file) != identity or identity is None:
                session.abort()
                return False
            schema.prepare(session.writer, allowed=self._options.migrate)
            with sound():
                schema.join(session.writer, self._clock, self._machine)
            session.writer.execute("commit")
            self._file, self._identity = file, identity
            return birth.identity(file) == identity
        except apsw.Error as error:
            if birth.identity(file) != identity:
                return False
            if isinstance(error, apsw.NotADBError):
                message = f"{self._path}: not an SQLite database"
                raise UsageError(message, hint="name another file") from error
            if isinstance(error, apsw.ReadOnlyError):
                message = f"{self._path}: read-only"
                raise UsageError(message) from error
            raise

    def _join_reading(self, session: Session) -> None:
        if not schema.is_current(session.reader):
            message = f"{self._path}: not a database of this release"
            raise UsageError(message, hint="run `perdure migrate`")
        for boot_id, base, _ in fetch(session.reader, "meta"):
            if boot_id == self._machine.boot_id:
                self._clock.start(base)

    def close(self) -> None:
        """Release everything."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> Session:
        session = self._session
        if session is None:
            message = "the store is not open"
            raise UsageError(message)
        return session

    def _write(
        self, work: Callable[[Session], R], look: Callable[[R], bool | None] = _no_telling, *, block: bool = True
    ) -> R | None:
        """Do ``work`` in a write transaction and return its result once that is durable.

        Args:
            work: called with the session, inside the transaction.
            look: finds out, through a new connection, whether the transaction is there after a COMMIT that failed.
            block: False returns None where the call would wait.

        Raises:
            StoreUnavailable: COMMIT failed and nothing was recorded; or there is no telling (``unknown``).
        """
        session = self._opened()
        if not session.acquire(block=block):
            return None
        try:
            try:
                session.begin(block=block)
            except apsw.BusyError:
                if block:
                    raise
                return None
            try:
                self._agree(session)
                result = work(session)
                certain = session.commit()
            except BaseException:
                self._forget()
                session.abort()
                raise
            if certain:
                self._own_version = session.writer.data_version()
            else:
                self._forget()
                _conclude(done=look(result))
            return result
        finally:
            session.release()

    def _change(self, work: Callable[[Session], R]) -> R | None:
        """Do ``work``, which may change what is known of the file, in a write transaction."""

        def afresh(session: Session) -> R:
            self._tails.others_wrote()
            return work(session)

        return self._write(afresh)

    def _check_place(self) -> None:
        """Notice that the file was removed or replaced: SQLite would go on writing to what nobody can open any more.

        Asked with each heartbeat, not with each commit. A worker whose heartbeats fail starts nothing more.

        Raises:
            StoreUnavailable: it was.
        """
        self._opened()
        if birth.identity(self._file) != self._identity:
            message = f"{self._path}: the file was removed or replaced while in use"
            raise StoreUnavailable(message, hint="put the file back, or restart to work on the new one")

    def _forget(self) -> None:
        """Drop what was known of the file: the transaction is gone, and perhaps the connection with it."""
        self._own_version = -1
        self._tails.clear()

    def _agree(self, session: Session) -> None:
        """Make sure that the file is still this machine's, and follow its clock."""
        if session.writer.data_version() == self._own_version and self._queues is not UNREAD:
            return  # nobody has written since we did
        self._tails.others_wrote()
        row = fetch(session.writer, "meta")
        if not row:
            message = "the file has lost its meta row"
            raise StoreCorrupt(message)
        boot_id, base, version = row[0]
        if boot_id != self._machine.boot_id:
            message = f"{self._path}: in use on another machine; SQLite cannot be shared between machines"
            raise UsageError(message, hint="use a database server")
        with sound():
            self._clock.adopt(base)
            self._queues = read_book(session.writer, version, self._queues)

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """Apply ``batch`` in one transaction and answer each write in order."""

        def work(session: Session) -> list[Outcome]:
            return self._apply(session, batch)

        def look(outcomes: list[Outcome]) -> bool | None:
            return has_happened(self._book(self._opened()), batch, outcomes)

        return self._write(work, look, block=block)

    def _apply(self, session: Session, batch: Sequence[Write]) -> list[Outcome]:
        try:
            self._queues.check(batch)
            return apply(session.writer, batch, self._clock.now(), self._tails)
        except ENVIRONMENT:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the second look finds out whose it is
            self._forget()
            session.rollback()
            session.begin()
            self._agree(session)
            self._queues = self._queues.after(batch)
            return Settlement(self._book(session), batch).settle()

    def _book(self, session: Session) -> SqliteBook:
        return SqliteBook(session.writer, self._clock.now(), self._tails)

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:
        """Claim due runs in one short transaction."""
        if block:
            with self._opened().reading() as connection:
                answer = claim.without_writing(connection, request, self._clock.now(), self._queues)
            if answer is not None:
                return answer  # the usual case of an idle worker: no need for the write lock

        def work(session: Session) -> Claims:
            now = self._clock.now()
            return claim.claim(session.writer, request, decide, now, self._tails, self._damaged, self._queues)

        def look(claims: Claims) -> bool | None:
            return has_happened(self._book(self._opened()), [one.append for one in claims.taken])

        return self._write(work, look, block=block)

    def register(self, worker: WorkerRow) -> None:
        """Insert the row of a worker that begins its life."""
        self._write(lambda session: lease.register(session.writer, worker))

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend a live worker's lease."""
        self._check_place()
        beat = self._write(lambda session: lease.heartbeat(session.writer, worker_id, lease_us, self._clock.now()))
        return beat or Heartbeat(alive=False, owned={})

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return run id to (epoch, inbox_n) of every run the worker owns."""
        with self._opened().reading() as connection:
            return lease.owned(connection, worker_id)

    def sweep(self) -> list[str]:
        """Mark workers whose lease has ended as dead."""
        with self._opened().reading() as connection:
            if not lease.is_sweep_due(connection, self._clock.now()):
                return []
        return self._write(lambda session: lease.sweep(session.writer, self._clock.now())) or []

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """Return a run, what a purged one left, or None."""
        if not is_text(run_id):
            return None
        with self._opened().reading() as connection:
            return run_row(connection, run_id) or tombstone(connection, run_id)

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that are neither ended nor parked."""
        asked = msgspec.json.encode([run_id for run_id in run_ids if is_text(run_id)]).decode()
        with self._opened().reading() as connection:
            return [row[0] for row in fetch(connection, "going_on", asked)]

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return a part of a run's log."""
        if not is_text(run_id):
            return []
        with self._opened().reading() as connection:
            return listing.load(connection, run_id, after, limit)

    def inbox(self, run_id: str) -> list[Message]:
        """Return the messages that wait."""
        if not is_text(run_id):
            return []
        with self._opened().reading() as connection:
            return [Message._make(row) for row in fetch(connection, "inbox", run_id)]

    def problems(self) -> list[str]:
        """Return what SQLite finds wrong with the file, one line each; for ``verify``. Reads all of it."""
        with self._opened().reading() as connection:
            return listing.problems(connection)

    def list(self, query: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        with self._opened().reading() as connection:
            return listing.listing(connection, query)

    def stats(self) -> StoreStats:
        """Count what there is, and say what this database really is."""
        with self._opened().reading() as connection, sound():
            found = facts(connection, self._path, fixed=self._options.trust_sqlite or build.is_fixed())
            return listing.stats(connection, self._clock.now(), found)

    def change_count(self) -> int:
        """Return a number that changes when another process has written; late by a look while this one writes."""
        session = self._opened()
        if session.acquire(block=False):  # else this process is writing: there is a next time
            try:
                self._seen_version = int(fetch(session.writer, "data_version")[0][0])
            finally:
                session.release()
        return self._seen_version
