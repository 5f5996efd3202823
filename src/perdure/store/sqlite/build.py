"""What this build of SQLite is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from perdure.errors import UsageError
from perdure.store.sqlite.session import SYNCHRONOUS

if TYPE_CHECKING:
    from perdure.store.base import StoreOptions

OLDEST_SQLITE = (3, 51, 3)
"""Before it, two connections that write and checkpoint at the same moment can damage a WAL file."""


def check(options: StoreOptions) -> None:
    """Refuse what this build of SQLite does not give.

    Raises:
        UsageError: with what to do.
    """
    if options.durability not in SYNCHRONOUS:
        message = f"SQLite has no durability {options.durability!r}: it gives {' or '.join(SYNCHRONOUS)}"
        hint = "`memory` is for memory://, `quorum` needs a database server with replicas"
        raise UsageError(message, hint=hint)
    if not (options.trust_sqlite or is_fixed()):
        message = f"SQLite {apsw.sqlite_lib_version()} can damage a database that several connections write to"
        hint = "install apsw >= 3.51.3 as a wheel; or set trust_sqlite if your build carries the WAL-reset fix"
        raise UsageError(message, hint=hint)


def is_fixed() -> bool:
    """Whether it is one that does not damage files that several connections write to."""
    return tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3]) >= OLDEST_SQLITE
