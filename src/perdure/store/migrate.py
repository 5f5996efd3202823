"""Bring a schema up to date: numbered SQL files, forward only, each recorded with its checksum.

A migration is ``store/sql/<backend>/NNNN_name.sql``. A line ``-- phase: pre`` says that processes of the release before
may run beside the new schema, ``-- phase: post`` that they may not; from 0003 on the name of the former ends in
``_pre``, so that a release can tell of a migration that it does not know. A backend runs `upgrade` under its own lock;
what is to be done is decided here, from data, so that every backend decides alike. What is promised: ADR 0022.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perdure.errors import SchemaTooNew, UsageError
from perdure.store.sqltext import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNFINISHED = "copy_unfinished"
"""A mark among the migrations, with a number beyond all: no release opens a database that is half of a copy."""
BESIDE = "_pre"
_UNNAMED = 2
"""Migrations so old that their names do not tell their phase."""
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_TABLE = re.compile(r"create table (?:if not exists )?(\S+)")
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


class SchemaText(NamedTuple):
    """A database's schema, as text is made for it."""

    applied: Callable[[], list[Applied] | None]
    """Looks what was applied; None where there is nothing yet."""
    placed: Callable[[str], str]
    """Returns a statement of ours as it has to be run in this database."""


class Schema(Protocol):
    """What `upgrade` needs of a backend, inside its lock and, where DDL allows it, its transaction."""

    def applied(self) -> list[Applied] | None:
        """Return what was applied, or None where there is no ``schema_migration`` table."""
        ...

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended; called only if migrations were applied."""
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
    for file in sorted((FOLDER / backend).iterdir(), key=lambda file: file.name):
        match = _FILE.match(file.name)
        if not match:
            continue
        sql = file.read_text("utf-8").replace("\r\n", "\n")
        phase = _PHASE.search(sql)
        if int(match[1]) != len(found) + 1 or not phase:
            message = f"sql/{backend}/{file.name}: out of order, or no line '-- phase: pre' or '-- phase: post'"
            raise ValueError(message)
        if int(match[1]) > _UNNAMED and (phase[1] == "pre") != match[2].endswith(BESIDE):
            message = f"sql/{backend}/{file.name}: out of order: its name does not tell its phase"
            raise ValueError(message)
        found.append(Migration(int(match[1]), match[2], phase[1], sql))
    return tuple(found)


def pending(known: Sequence[Migration], applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """Return the migrations that are still to be applied.

    Raises:
        SchemaTooNew: the database has one that is not known here, and beside which this release may not run.
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
        if not all(one.name.endswith(BESIDE) for one in applied[len(known) :]):
            message = f"the database has schema {last.number:04d}_{last.name}, this release knows {len(known):04d}"
            raise SchemaTooNew(message)
    return tuple(known[len(applied) :])


def upgrade(schema: Schema, known: Sequence[Migration], *, allowed: bool) -> int:
    """Apply what is pending and return how many that were. Call it under the backend's lock.

    Raises:
        SchemaTooNew: see `pending`.
        UsageError: see `pending`; or something is pending, and ``allowed`` is False or there are live workers that
            could not run beside it.
    """
    applied = schema.applied() or []
    todo = pending(known, applied)
    if todo and not allowed:
        message = f"the database lacks migration {todo[0].number:04d}_{todo[0].name}"
        raise UsageError(message, hint="run `perdure migrate`")
    if applied and any(migration.phase == "post" for migration in todo):
        names = schema.live()
        if names:
            message = f"workers of the release before cannot run beside the new schema: {', '.join(names)}"
            raise UsageError(message, hint="stop them first, and start those of this release afterwards")
    for migration in todo:
        schema.apply(migration)
    return len(todo)


def is_ready(
    schema: Schema,
    known: Sequence[Migration],
    *,
    migrate: bool,
    create: bool,
    read_only: bool,
    missing: str,
) -> bool:
    """Whether nothing is pending. If something is, it may be applied: call `upgrade` under the backend's lock.

    Raises:
        SchemaTooNew: see `pending`.
        UsageError: see `pending`; or something is pending and may not be applied. ``missing`` says that all is.
    """
    applied = schema.applied()
    if applied is not None and not pending(known, applied):
        return True
    if applied is None and (read_only or not create):
        raise UsageError(missing, hint="run `perdure migrate`")
    if read_only or not migrate:
        upgrade(schema, known, allowed=False)
    return False


def is_exactly(known: Sequence[Migration], applied: Sequence[Applied] | None) -> bool:
    """Whether the schema is that of this release, neither older nor newer.

    Raises:
        SchemaTooNew: see `pending`.
        UsageError: see `pending`.
    """
    return applied is not None and not pending(known, applied) and len(applied) == len(known)


def script(backend: str, *, after: int = 0) -> str:
    """Return the SQL of all migrations with a number above ``after``, for people who run their own.

    It records each migration as `upgrade` would, so that the engine finds the schema up to date. Nothing to do is an
    empty script.
    """
    todo = [migration for migration in migrations(backend) if migration.number > after]
    if not todo:
        return ""
    parts = [bootstrap(backend).strip()] if after == 0 else []
    table = _TABLE.search(bootstrap(backend))
    for migration in todo:
        parts.append(migration.sql.strip())
        parts.append(  # no parameters in a script; the name is checked when the file is found
            f"insert into {table and table[1]} (number, name, checksum, applied_at) values"  # noqa: S608
            f" ({migration.number}, '{migration.name}', '{migration.checksum}', 0);"
        )
    return "begin;\n\n" + "\n\n".join(parts) + "\n\ncommit;\n"


def bootstrap(backend: str) -> str:
    """Return the SQL that makes the table of applied migrations itself."""
    return (FOLDER / backend / "schema_migration.sql").read_text("utf-8")
