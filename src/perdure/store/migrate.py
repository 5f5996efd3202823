"""Bring a schema up to date: numbered SQL files, forward only, each recorded with its checksum.

A migration is ``store/sql/<backend>/NNNN_name.sql``. A line ``-- phase: pre`` says that workers of the release before
may run beside the new schema, ``-- phase: post`` that they may not. A backend runs `upgrade` under its own lock; what
is to be done is decided here, from data, so that every backend decides alike.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perdure.errors import SchemaTooNew, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

UNFINISHED = "copy_unfinished"
"""A mark among the migrations, with a number beyond all: no release opens a database that is half of a copy."""
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_PHASE = re.compile(r"^-- phase: (pre|post)$", re.MULTILINE)


class Migration(NamedTuple):
    """One step of a schema's history. Never edited once released."""

    number: int
    name: str
    phase: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, without a difference in line ends."""
        return sha256(self.sql.encode()).hexdigest()


class Applied(NamedTuple):
    """A row of ``schema_migration``."""

    number: int
    name: str
    checksum: str


class Schema(Protocol):
    """What `upgrade` needs of a backend, inside its lock and, where DDL allows it, its transaction."""

    def applied(self) -> list[Applied] | None:
        """Return what was applied, or None where there is no ``schema_migration`` table."""
        ...

    def apply(self, migration: Migration) -> None:
        """Run a migration and record it, as one unit."""
        ...


def migrations(backend: str) -> tuple[Migration, ...]:
    """Return a backend's migrations in order.

    Raises:
        ValueError: the files are not numbered 1, 2, 3, ... or one does not declare its phase.
    """
    found: list[Migration] = []
    for file in sorted((files("perdure.store") / "sql" / backend).iterdir(), key=lambda file: file.name):
        match = _FILE.match(file.name)
        if not match:
            continue
        sql = file.read_text("utf-8").replace("\r\n", "\n")
        phase = _PHASE.search(sql)
        if int(match[1]) != len(found) + 1 or not phase:
            message = f"sql/{backend}/{file.name}: out of order, or no line '-- phase: pre' or '-- phase: post'"
            raise ValueError(message)
        found.append(Migration(int(match[1]), match[2], phase[1], sql))
    return tuple(found)


def pending(known: Sequence[Migration], applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """Return the migrations that are still to be applied.

    Raises:
        SchemaTooNew: the database has one that is not known here.
        UsageError: the database has another text of a known one, or a gap, or is half of a copy.
    """
    for place, (have, want) in enumerate(zip(applied, known, strict=False), start=1):
        if have.number != place or have.checksum != want.checksum:
            message = f"migration {want.number:04d}_{want.name} of the database differs from the one of this release"
            raise UsageError(message, hint="restore the released file, or use the database it belongs to")
    if len(applied) > len(known):
        last = applied[-1]
        if last.name == UNFINISHED:
            message = "a copy into this database has not finished"
            raise UsageError(message, hint="run the same `perdure copy` again, or give it an empty database")
        message = f"the database has schema {last.number:04d}_{last.name}, this release knows {len(known):04d}"
        raise SchemaTooNew(message)
    return tuple(known[len(applied) :])


def upgrade(schema: Schema, known: Sequence[Migration], *, allowed: bool) -> int:
    """Apply what is pending and return how many that were. Call it under the backend's lock.

    Raises:
        SchemaTooNew: see `pending`.
        UsageError: see `pending`; or something is pending and ``allowed`` is False.
    """
    todo = pending(known, schema.applied() or ())
    if todo and not allowed:
        message = f"the database lacks migration {todo[0].number:04d}_{todo[0].name}"
        raise UsageError(message, hint="run `perdure migrate`")
    for migration in todo:
        schema.apply(migration)
    return len(todo)


def script(backend: str, *, after: int = 0) -> str:
    """Return the SQL of all migrations with a number above ``after``, for people who run their own.

    It records each migration as `upgrade` would, so that the engine finds the schema up to date.
    """
    parts = [bootstrap(backend).strip()] if after == 0 else []
    for migration in migrations(backend):
        if migration.number > after:
            parts.append(migration.sql.strip())
            parts.append(  # no parameters in a script; the name is checked when the file is found
                "insert into schema_migration (number, name, checksum, applied_at) values"  # noqa: S608
                f" ({migration.number}, '{migration.name}', '{migration.checksum}', 0);"
            )
    return "begin;\n\n" + "\n\n".join(parts) + "\n\ncommit;\n"


def bootstrap(backend: str) -> str:
    """Return the SQL that makes the table of applied migrations itself."""
    return (files("perdure.store") / "sql" / backend / "schema_migration.sql").read_text("utf-8")
