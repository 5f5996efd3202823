"""`perdure.store.base.Store` on one SQLite file."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import apsw

from perdure.errors import StoreCorrupt, StoreUnavailable, UsageError
from perdure.model.event import Event
from perdure.model.run import Message
from perdure.model.write import COMMITTED, Append, Create, Purge, Send
from perdure.store import memory
from perdure.store.base import Capabilities
from perdure.store.instrumented import Instrumented
from perdure.store.sqlite import claim, lease, listing, place, schema
from perdure.store.sqlite.batch import SQL, Doubt, apply, run_row, tombstone
from perdure.store.sqlite.clock import Clock, Machine, this_machine
from perdure.store.sqlite.facts import facts
from perdure.store.sqlite.fault import ENVIRONMENT, translate
from perdure.store.sqlite.session import SYNCHRONOUS, Session
from perdure.store.sqlite.settle import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perdure.model.claim import Claimed, ClaimRequest
    from perdure.model.filter import Fact, RunFilter, StoreStats
    from perdure.model.run import Heartbeat, RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Decide, Store, StoreOptions

OLDEST_SQLITE = (3, 51, 3)
"""Before it, two connections that write and checkpoint at the same moment can damage a WAL file."""
_CAPABILITIES = Capabilities("sqlite", inline=True, durability=tuple(SYNCHRONOUS), shared=True)
_opening = threading.Lock()
"""Creating a file and opening it is one step for this process: a close in between would drop another store's locks."""


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
        self._session: Session | None = None
        self._busy_looks = 0

    @property
    def capabilities(self) -> Capabilities:
        """What this backend is like."""
        return _CAPABILITIES

    def open(self) -> None:
        """Connect, migrate, check what SQLite gives, and join the file's clock."""
        if self._session is not None:
            return
        options = self._options
        _check_options(options)
        with _opening:
            file = place.check(self._path, read_only=options.read_only, must_exist=not options.create)
            created = not options.read_only and place.create(file)
            session = Session(
                file, durability=options.durability, busy_timeout_s=options.busy_timeout_s, read_only=options.read_only
            )
            try:
                self._connect(session)
            except BaseException:
                session.close()
                raise
        self._session = session

    def _connect(self, session: Session) -> None:
        try:
            session.connect()
            if self._options.read_only:
                self._check_read_only(session)
                return
            session.begin()
            schema.prepare(session.writer, allowed=self._options.migrate)
            schema.join(session.writer, self._clock, self._machine)
            session.writer.execute("commit")
        except apsw.NotADBError as error:
            message = f"{self._path}: not an SQLite database"
            raise UsageError(message, hint="name another file") from error
        except apsw.ReadOnlyError as error:
            message = f"{self._path}: read-only"
            raise UsageError(message) from error

    def _check_read_only(self, session: Session) -> None:
        if not schema.is_current(session.reader):
            message = f"{self._path}: not a database of this release"
            raise UsageError(message, hint="run `perdure migrate`")
        row = session.reader.execute(SQL["meta"]).fetchone()
        if row is not None and row[0] == self._machine.boot_id:
            self._clock.start(row[1])

    def close(self) -> None:
        """Release everything."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def now(self) -> int:
        """Return the time on the common clock."""
        return self._clock.now()

    def _open_session(self) -> Session:
        session = self._session
        if session is None:
            message = "the store is not open"
            raise UsageError(message)
        return session

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """Lend the writing connection inside a transaction that ends with this block."""
        session = self._open_session()
        session.acquire(block=True)
        try:
            session.begin()
            try:
                self._agree(session)
                yield session.writer
            except BaseException:
                session.abort()
                raise
            if not session.commit():
                message = "COMMIT failed, and what it did is not known"
                raise StoreUnavailable(message, unknown=True)
        finally:
            session.release()

    def _agree(self, session: Session) -> None:
        """Make sure that the file is still this machine's, and follow its clock."""
        row = session.writer.execute(SQL["meta"]).fetchone()
        if row is None:
            message = "the file has lost its meta row"
            raise StoreCorrupt(message)
        if row[0] != self._machine.boot_id:
            message = f"{self._path}: in use on another machine; SQLite cannot be shared between machines"
            raise UsageError(message, hint="use a database server")
        self._clock.adopt(row[1])

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """Apply ``batch`` in one transaction and answer each write in order."""
        session = self._open_session()
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
                outcomes = self._apply(session, batch)
            except BaseException:
                session.abort()
                raise
            if not session.commit():
                self._look(session, batch, outcomes)
            return outcomes
        finally:
            session.release()

    def _apply(self, session: Session, batch: Sequence[Write]) -> list[Outcome]:
        self._agree(session)
        try:
            return apply(session.writer, batch, self._clock.now())
        except ENVIRONMENT:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the second look finds out whose it is
            session.rollback()
            session.begin()
            return Settlement(session.writer, batch, self._clock.now()).settle()

    def _look(self, session: Session, batch: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        """Find out by our own ids whether a COMMIT that failed has happened. One write tells of all.

        Raises:
            StoreUnavailable: it has not; or there is nothing to tell it by (``unknown``).
        """
        done = None
        for write, outcome in zip(batch, outcomes, strict=True):
            if outcome is COMMITTED and isinstance(write, Append | Create):
                last = write.events[-1]
                done = session.writer.execute(SQL["commit_at"], (last.run_id, last.seq)).get == last.commit_id
                break
        if done:
            return
        message = "COMMIT failed: nothing was recorded" if done is False else "COMMIT failed, and what it did is not known"
        raise StoreUnavailable(message, unknown=done is None)

    def claim(self, request: ClaimRequest, decide: Decide) -> list[Claimed]:
        """Claim due runs in one short transaction."""
        with self._writing() as connection:
            return claim.claim(connection, request, decide, self._clock.now())

    def register(self, worker: WorkerRow) -> None:
        """Insert the row of a worker that begins its life."""
        with self._writing() as connection:
            lease.register(connection, worker)

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend a live worker's lease."""
        with self._writing() as connection:
            return lease.heartbeat(connection, worker_id, lease_us, self._clock.now())

    def sweep(self) -> list[str]:
        """Mark workers whose lease has ended as dead."""
        with self._writing() as connection:
            return lease.sweep(connection, self._clock.now())

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """Return a run, what a purged one left, or None."""
        with self._open_session().reading() as connection:
            return run_row(connection, run_id) or tombstone(connection, run_id)

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return a part of a run's log."""
        with self._open_session().reading() as connection:
            return listing.load(connection, run_id, after, limit)

    def inbox(self, run_id: str) -> list[Message]:
        """Return the messages that wait."""
        with self._open_session().reading() as connection:
            return [Message._make(row) for row in connection.execute(SQL["inbox"], (run_id,)).fetchall()]

    def list(self, query: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        with self._open_session().reading() as connection:
            return listing.listing(connection, query)

    def stats(self) -> StoreStats:
        """Count what there is."""
        with self._open_session().reading() as connection:
            return listing.stats(connection, self._clock.now())

    def facts(self) -> tuple[Fact, ...]:
        """Return what this database really is."""
        with self._open_session().reading() as connection:
            return facts(connection, self._path, fixed=self._options.trust_sqlite or _is_fixed())

    def change_count(self) -> int:
        """Return a number that changes when another process writes, and every time while the writer is busy."""
        session = self._open_session()
        if not session.acquire(block=False):
            self._busy_looks += 1
            return -self._busy_looks
        try:
            return session.writer.data_version()
        finally:
            session.release()

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return what a worker owns."""
        with self._open_session().reading() as connection:
            return lease.owned(connection, worker_id)


def _check_options(options: StoreOptions) -> None:
    if options.durability not in SYNCHRONOUS:
        message = f"SQLite has no durability {options.durability!r}: it gives {' or '.join(SYNCHRONOUS)}"
        hint = "`memory` is for memory://, `quorum` needs a database server with replicas"
        raise UsageError(message, hint=hint)
    if not (options.trust_sqlite or _is_fixed()):
        message = f"SQLite {apsw.sqlite_lib_version()} can damage a database that several connections write to"
        hint = "install apsw >= 3.51.3 as a wheel; or set trust_sqlite if your build carries the WAL-reset fix"
        raise UsageError(message, hint=hint)


def _is_fixed() -> bool:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) >= OLDEST_SQLITE
