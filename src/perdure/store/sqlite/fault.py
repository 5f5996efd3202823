"""What a driver error means: the one table of this backend."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

from perdure.errors import PerdureError, StoreCorrupt, StoreError, StoreUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = (
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.InterruptError,
    apsw.InternalError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
    MemoryError,
)
"""Errors that say nothing about the write at hand: it must not be blamed for them."""


@contextmanager
def sound() -> Iterator[None]:
    """Take a value of an unexpected type for damage: SQLite checks types when it writes, not when it reads.

    Raises:
        StoreCorrupt: the block met one.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        message = f"the database file is damaged: a value is of another type than was written ({error})"
        raise StoreCorrupt(message) from error


def translate(error: Exception) -> PerdureError | None:
    """Return what to raise instead of ``error``; None if it is not this backend's to translate."""
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt("the database file is damaged: a text in it is not text")
    if not isinstance(error, apsw.Error):
        return None
    match error:
        case apsw.CorruptError():
            return StoreCorrupt(f"the database file is damaged: {error}")
        case apsw.NotADBError():
            return StoreCorrupt("the file is not an SQLite database (any more)")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreUnavailable("another process has held the database's lock for too long")
        case apsw.FullError():
            return StoreUnavailable("the disk is full", hint="free some space; nothing recorded is lost")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return UsageError(f"the database cannot be written: {error}", hint="check the rights of file and folder")
        case apsw.CantOpenError() | apsw.IOError() | apsw.NoMemError() | apsw.InterruptError():
            return StoreUnavailable(f"the database file cannot be used now: {error}")
        case _:
            return StoreError(f"SQLite refused: {error}")
