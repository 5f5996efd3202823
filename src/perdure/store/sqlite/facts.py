"""What this database really is: settings given, file, schema; and what is wrong with it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import apsw

from perdure.model.filter import Fact
from perdure.store.migrate import migrations
from perdure.store.sqlite import place
from perdure.store.sqlite.batch import fetch

if TYPE_CHECKING:
    from pathlib import Path

_LITTLE_BYTES = 64 << 20
_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def facts(connection: apsw.Connection, path: Path, *, fixed: bool) -> tuple[Fact, ...]:
    """Return what there is to know. ``fixed``: this SQLite does not have the WAL-reset fault."""
    version = apsw.sqlite_lib_version()
    mode = str(connection.pragma("journal_mode"))
    given = _SYNCHRONOUS.get(int(str(connection.pragma("synchronous"))), "?")
    return (
        Fact("sqlite", version, "" if fixed else "lacks the fix of the WAL-reset fault: install apsw >= 3.51.3"),
        Fact("journal mode", mode, "" if mode == "wal" else "not wal: what is promised about crashes does not hold"),
        Fact("synchronous", given, "" if given in ("full", "extra") else "durability is 'process', not 'host'"),
        _schema(connection),
        *_file(path),
    )


def _schema(connection: apsw.Connection) -> Fact:
    number, name, _ = fetch(connection, "migrations")[-1]  # an open store has applied at least one
    current = number >= len(migrations("sqlite"))
    return Fact("schema", f"{number:04d}_{name}", "" if current else "not current: run `perdure migrate`")


def _file(path: Path) -> tuple[Fact, ...]:
    real = path.absolute().parent.resolve() / path.name
    status = real.stat()
    mode = stat.S_IMODE(status.st_mode)
    kind = place.file_system(str(real.parent))
    space = os.statvfs(real.parent)
    free = space.f_bavail * space.f_frsize
    log = real.with_name(real.name + "-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    return (
        Fact("file", f"{real} ({status.st_size:,} bytes, log {log_bytes:,})"),
        Fact("rights", f"{mode:04o}", f"others can read or write it: chmod 600 {real}" if mode & 0o077 else ""),
        Fact(
            "file system", kind or "?", "a network one, where SQLite cannot lock" if place.NETWORK.match(kind) else ""
        ),
        Fact("free space", f"{free:,} bytes", "the disk is nearly full" if free < _LITTLE_BYTES else ""),
    )
