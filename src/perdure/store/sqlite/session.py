"""The two connections a process has to a file: one that writes, one that reads. Each under its own lock.

INV-1  All writes and checkpoints of a process go through one connection; never ``mmap``.
INV-2  What a connection reports as committed has been confirmed by a COMMIT that returned without an error. After
       any other end of a COMMIT both connections are closed and the truth is read through new ones.
INV-3  A child of fork never touches an inherited connection, not even to close it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import apsw

from perdure.errors import StoreUnavailable, UsageError
from perdure.store.sqlite.fault import ENVIRONMENT
from perdure.store.sqlite.headroom import Headroom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SYNCHRONOUS = {"host": 2, "process": 1}
_FLAGS = apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_EXRESCODE
_PAGES_PER_CHECKPOINT = 4000
_KEPT_LOG_BYTES = 64 << 20
_CACHE_KIB = 32 << 10
_NAP_S = 0.0005
_LONGEST_NAP_S = 0.01

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """Make the inherited connections unusable and immortal: closing one could delete the parent's log."""
    for session in list(_sessions):
        session.forked = True
        for connection in (session.writer, session.reader):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


os.register_at_fork(after_in_child=_abandon_in_child)


class Session:
    """Connections to one database file.

    Args:
        file: an existing file, perhaps empty.
        durability: a key of `SYNCHRONOUS`.
        busy_timeout_s: how long to wait for another process's lock.
        read_only: open without the right to write.
        inspect: called with each new connection before anything about the file is changed; refuses by raising.

    Attributes:
        writer: the connection that writes; only under `writing` or `reading_as_writer`.
        reader: the connection that reads; only under `reading`.
    """

    writer: apsw.Connection
    reader: apsw.Connection

    def __init__(
        self,
        file: Path,
        *,
        durability: str,
        busy_timeout_s: float,
        read_only: bool,
        inspect: Callable[[apsw.Connection], object],
    ) -> None:
        self._file = file
        self._inspect = inspect
        self._synchronous = SYNCHRONOUS[durability]
        self._timeout_s = busy_timeout_s
        self._read_only = read_only
        self._block = True
        self._waiting_since = 0.0
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._lost = False
        self._connected = False
        self.closed: bool = False
        self.forked = False
        self._headroom: Headroom | None = None

    def connect(self) -> None:
        """Open both connections.

        Raises:
            UsageError: the file is no database, or SQLite does not give what was asked for.
            apsw.Error: anything else.
        """
        self.writer = self._connection()
        try:
            self.reader = self._connection()
        except BaseException:
            self.writer.close()
            raise
        self._connected = True
        if self._synchronous == SYNCHRONOUS["host"] and not self._read_only:
            log = self._file.with_name(f"{self._file.name}-wal")
            self._headroom = Headroom(log, int(str(self.writer.pragma("page_size"))))
        _sessions.add(self)

    def _connection(self) -> apsw.Connection:
        mode = apsw.SQLITE_OPEN_READONLY if self._read_only else apsw.SQLITE_OPEN_READWRITE
        connection = apsw.Connection(str(self._file), flags=mode | _FLAGS, statementcachesize=256)
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: apsw.Connection) -> None:
        if not self._read_only and connection.readonly("main"):
            message = f"{self._file}: read-only"
            raise UsageError(message)
        connection.set_busy_handler(self._wait)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
        # Else a build with statistics plans a statement anew whenever a parameter has a new value: 38 µs, not 2.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._inspect(connection)
        self._enter_wal_mode(connection)
        wanted: dict[str, int | str] = {
            "synchronous": self._synchronous,
            "fullfsync": 1,  # where a plain fsync does not reach the disk itself (macOS); elsewhere nothing
            "checkpoint_fullfsync": 1,
            "mmap_size": 0,
            "cache_size": -_CACHE_KIB,
            "wal_autocheckpoint": _PAGES_PER_CHECKPOINT,
            "journal_size_limit": _KEPT_LOG_BYTES,
            "cell_size_check": 1,
        }
        for name, value in wanted.items():
            connection.pragma(name, value)
        # The promise is about what the database does, not about what it was asked to do.
        wanted |= {"foreign_keys": 1, "trusted_schema": 0}
        if not self._read_only:
            wanted["journal_mode"] = "wal"
        for name, value in wanted.items():
            given = connection.pragma(name)
            if given != value:
                message = f"{self._file}: SQLite gives {name} = {given}, not {value}"
                raise UsageError(message, hint="use a build of SQLite that supports it, or another durability mode")

    def _enter_wal_mode(self, connection: apsw.Connection) -> None:
        if self._read_only:
            return
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                connection.pragma("journal_mode", "wal")
            except apsw.BusyError:
                # SQLite does not call the busy handler here, because waiting could be a deadlock. A retry is not.
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_NAP_S)
            else:
                return

    def _wait(self, earlier: int) -> bool:
        """Wait for another process's lock; called by SQLite with the number of calls before this one."""
        if not self._block:
            return False
        now = time.monotonic()
        if earlier == 0:
            self._waiting_since = now
        if now - self._waiting_since >= self._timeout_s:
            return False
        time.sleep(min(_NAP_S * (1 + earlier), _LONGEST_NAP_S))
        return True

    def check(self) -> None:
        """Refuse use after `close` and after a fork.

        Raises:
            UsageError: always with what to do.
        """
        if self.forked:
            message = "the store was opened before a fork and cannot be used in the child"
            raise UsageError(message, hint="open it after the fork")
        if self.closed:
            message = "the store is closed"
            raise UsageError(message)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lend the reading connection. Every result must be fetched to its end inside."""
        self.check()
        if self._lost:
            with self._write_lock:
                self._restore()
        with self._read_lock:
            self.check()
            yield self.reader

    def acquire(self, *, block: bool) -> bool:
        """Take the write lock of this process; False if that would wait and ``block`` is False."""
        if self.forked:
            self.check()  # in a child of fork the lock may be held by nobody
        if not self._write_lock.acquire(blocking=block):
            return False
        if self.closed or self._lost:
            try:
                self.check()
                self._restore()
            except BaseException:
                self._write_lock.release()
                raise
        return True

    def release(self) -> None:
        """Give the write lock back."""
        self._write_lock.release()

    def begin(self, *, block: bool = True) -> None:
        """Begin a write transaction.

        Raises:
            apsw.BusyError: another process has the lock, for longer than we wait (at all, if ``block`` is False).
        """
        self._block = block
        try:
            self.writer.execute("begin immediate")
        finally:
            self._block = True
        if self._headroom is not None:
            self._headroom.keep()

    def rollback(self) -> None:
        """Undo the transaction, if SQLite has not done so by itself."""
        if self.writer.in_transaction:
            self.writer.execute("rollback")

    def abort(self) -> None:
        """Undo the transaction; if even that fails, give up the connections: closing them undoes it."""
        if self._lost:
            return
        try:
            self.rollback()
        except apsw.Error:
            self.reopen()

    def commit(self) -> bool:
        """Commit, and say whether that is certain. False: the caller must look what is there, by its own ids.

        Raises:
            apsw.Error: it is certain that nothing was committed.
            StoreUnavailable: unknown, and the database cannot be read now.
        """
        try:
            self.writer.execute("commit")
        except (apsw.BusyError, apsw.FullError):
            self.abort()
            raise
        except (*ENVIRONMENT, apsw.SQLError) as error:
            try:
                self.reopen()
            except Exception as second:
                message = f"COMMIT failed ({error}), and the database cannot be opened to see what it did"
                raise StoreUnavailable(message, unknown=True) from second
            return False
        return True

    def reopen(self) -> None:
        """Replace both connections by new ones. The caller has the write lock."""
        self._lost = True
        self._restore()

    def _restore(self) -> None:
        """Make good for a loss of the connections; under the write lock, so that nobody else does the same."""
        if not self._lost:
            return
        with self._read_lock:
            self._let_go()
            for connection in (self.reader, self.writer):
                with suppress(apsw.Error):
                    connection.close(True)
            self.connect()
            self._lost = False

    def _let_go(self) -> None:
        if self._headroom is not None:
            self._headroom.close()

    def close(self) -> None:
        """Close both connections; in a child of fork only forget them."""
        if self.closed:
            return
        self.closed = True
        if self.forked:
            return
        with self._write_lock, self._read_lock:
            self._let_go()
            if self._connected:
                self.reader.close()
                self.writer.close()
