"""The schema of a file: migrations under SQLite's write lock, and the one row all processes agree on."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.errors import UsageError
from perdure.model.status import Status
from perdure.store.migrate import Applied, SchemaText, bootstrap, migrations, pending, upgrade
from perdure.store.sqlite.batch import SQL, fetch
from perdure.store.sqlite.place import check, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.store.migrate import Migration
    from perdure.store.sqlite.clock import Clock, Machine

APPLICATION_ID = 0x50657264
"""``Perd``: so that ``file`` and people can tell what the file is."""
_STATUSES = msgspec.json.encode([status.value for status in Status]).decode()
_OURS = ("run", "event_log", "inbox", "worker", "request", "tag", "meta")
_CLOSE_ENOUGH_US = 50_000


class SqliteSchema:
    """`perdure.store.migrate.Schema` on one connection, inside a write transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def applied(self) -> list[Applied] | None:
        """Return what was applied; None for a file without a schema of ours."""
        # Asked of the file, not of the connection: that may still believe what it saw before it got the lock.
        tables = {name for (name,) in fetch(self._connection, "tables")}
        if "schema_migration" in tables:
            return [Applied._make(row) for row in fetch(self._connection, "migrations")]
        for name in _OURS:
            if name in tables:
                message = f"the file belongs to another program: it has a table '{name}' that perdure did not make"
                raise UsageError(message, hint="name another file")
        return None

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        now = time.time_ns() // 1000  # before the file's own clock is known
        return [name for name, _, _ in fetch(self._connection, "live_worker", now)]

    def apply(self, migration: Migration) -> None:
        """Run a migration and record it."""
        self._connection.execute(migration.sql)
        self._connection.execute(
            "insert into schema_migration (number, name, checksum, applied_at) values (?, ?, ?, unixepoch() * 1000000)",
            (migration.number, migration.name, migration.checksum),
        )


def schema_of(url: str) -> SchemaText:
    """Return how to look what is there to migrate.

    Raises:
        UsageError: the URL names no file.
    """
    path = path_of(url)
    return SchemaText(lambda: None if path is None or not path.exists() else _applied(path), str)


def _applied(path: Path) -> list[Applied] | None:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW
    try:
        connection = apsw.Connection(str(check(path, read_only=True)), flags=flags)
        try:
            return SqliteSchema(connection).applied()
        finally:
            connection.close()
    except apsw.Error as error:
        message = f"{path}: cannot be read: {error}"
        raise UsageError(message) from error


def prepare(connection: apsw.Connection, *, allowed: bool) -> None:
    """Bring the schema up to date, inside the open write transaction.

    Raises:
        SchemaTooNew: a newer release was here.
        UsageError: the file is not ours, or not up to date and ``allowed`` is False.
    """
    schema = SqliteSchema(connection)
    known = migrations("sqlite")
    if schema.applied() is None and allowed:
        connection.execute(bootstrap("sqlite"))
        if connection.pragma("application_id") == 0:
            connection.pragma("application_id", APPLICATION_ID)
    upgrade(schema, known, allowed=allowed)


def is_current(connection: apsw.Connection) -> bool:
    """Whether nothing is to be migrated. Needs no lock.

    Raises:
        SchemaTooNew: a newer release was here.
        UsageError: the file is not ours.
    """
    applied = SqliteSchema(connection).applied()
    return applied is not None and not pending(migrations("sqlite"), applied)


def join(connection: apsw.Connection, clock: Clock, machine: Machine) -> None:
    """Agree with the file on boot and clock, inside the open write transaction.

    A new boot, or a file nobody works on, gets a new base: the wall clock, but never behind what is recorded.

    Raises:
        UsageError: the file is in use on another machine.
    """
    wall, ticks = machine.wall(), machine.ticks()
    last = int(fetch(connection, "last_at", _STATUSES)[0][0])
    base = max(wall, last) - ticks
    known_row = fetch(connection, "meta")
    if not known_row:
        connection.execute(SQL["insert_meta"], (str(uuid.uuid4()), machine.boot_id, base, base + ticks))
    else:
        boot_id, known, _ = known_row[0]
        # Without a boot id from the platform, a boot shows in the time since boot: it went back.
        rebooted = boot_id != machine.boot_id or known + ticks < last - _CLOSE_ENOUGH_US
        if rebooted:
            _refuse_second_machine(connection, machine, wall, same_boot=boot_id == machine.boot_id)
            connection.execute(SQL["bury_all"])
        elif abs(known - base) < _CLOSE_ENOUGH_US or fetch(connection, "live_worker", 0):
            base = known
        if rebooted or base != known:
            connection.execute(SQL["rebase"], (machine.boot_id, base, base + ticks))
    clock.start(base)


def _refuse_second_machine(connection: apsw.Connection, machine: Machine, wall: int, *, same_boot: bool) -> None:
    """Refuse a file whose workers are alive elsewhere. A live lease of our own host is one from before its reboot."""
    for name, host, _ in fetch(connection, "live_worker", wall):
        if host == machine.host or same_boot:
            continue
        message = f"the file is in use by worker {name!r} on {host}: SQLite cannot be shared between machines"
        raise UsageError(message, hint="stop that worker and wait for its lease to end, or use a database server")
