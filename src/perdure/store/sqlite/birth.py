"""Making a database file, and taking it back when nothing came of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import apsw


def create(file: Path) -> bool:
    """Create an empty file that only its owner may read, and say whether it is new.

    SQLite gives ``-wal`` and ``-shm`` the same mode. Closing the new file is harmless: nobody can have locks on it.
    """
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    os.close(descriptor)
    return True


def take_back(file: Path) -> None:
    """Remove a file that `create` made, unless there is something in it, or somebody else has it open by now.

    It is removed under SQLite's exclusive lock. A process that waits for that lock then finds that the file is no
    longer in its place (see `identity`) and begins anew.
    """
    with suppress(apsw.Error):
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
        try:
            # Leaving WAL mode works only for the last one who has the file open, and removes -wal and -shm.
            if connection.pragma("journal_mode", "delete") != "delete":
                return
            if _is_ours_alone(connection):
                file.unlink(missing_ok=True)
            with suppress(apsw.SQLError):
                connection.execute("rollback")
        finally:
            connection.close()


def _is_ours_alone(connection: apsw.Connection) -> bool:
    try:
        connection.execute("begin exclusive")
    except apsw.FullError:
        # Even the lock needs a few bytes in an empty file. Where they are not to be had, nobody else has written.
        return Path(connection.filename).stat().st_size == 0
    return bool(connection.execute("select count(*) from sqlite_schema").get == 0)


def identity(file: Path) -> tuple[int, int] | None:
    """Return what tells this file from another one at the same place; None if there is none."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
