"""Migrations, and what the server has to give."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from perdure.errors import UsageError
from perdure.store.migrate import Applied, bootstrap, is_ready, migrations, upgrade
from perdure.store.postgres.fault import fault
from perdure.store.server.dialect import Fault

if TYPE_CHECKING:
    from perdure.store.migrate import Migration
    from perdure.store.postgres.link import PostgresLink

OLDEST = 150_000
_OURS = ("run", "event", "inbox", "worker", "request", "tag", "schema_migration")
_NAME = re.compile(r"\bperdure\.|(?<=schema )perdure(?=;)|(?<=to_regnamespace\(')perdure(?='\))")
_MIGRATION_S = 3600.0
_PAUSE_S = 0.5


def in_schema(sql: str, schema: str) -> str:
    """Return SQL for a schema of another name."""
    return _NAME.sub(lambda match: f'"{schema}"' + ("." if match[0].endswith(".") else ""), sql)


class Given(NamedTuple):
    """What a server and its session are set to."""

    pid: int
    version_number: int
    version: str
    in_recovery: bool
    read_only: str
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    standbys: str
    data_sync_retry: str | None
    started: str
    """When the process that serves the connection was started."""


def given(link: PostgresLink) -> Given:
    """Ask the server, in a transaction of its own: behind a pooler our settings are those of a transaction."""
    link.begin()
    row: Any = link.execute("session").rows[0]
    link.rollback()
    return Given._make(row)


class PostgresSchema:
    """`perdure.store.migrate.Schema` on one connection, inside a transaction that holds the lock."""

    def __init__(self, link: PostgresLink, schema: str) -> None:
        self._link = link
        self._schema = schema

    def applied(self) -> list[Applied] | None:
        """Return what was applied; None for a database without a schema of ours."""
        tables = {str(row[0]) for row in self._link.execute("our_tables", self._schema, _OURS).rows}
        if "schema_migration" in tables:
            rows: Any = self._link.execute("migrations").rows
            return [Applied._make(row) for row in rows]
        if tables:
            message = f"the schema {self._schema!r} has a table {min(tables)!r} that perdure did not make"
            raise UsageError(message, hint="name another schema: ?schema=...")
        return None

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        return [str(row[0]) for row in self._link.execute("live_workers").rows]

    def apply(self, migration: Migration) -> None:
        """Run a migration and record it."""
        self._link.script(in_schema(migration.sql, self._schema))
        self._link.execute("note_migration", migration.number, migration.name, migration.checksum)


def prepare(link: PostgresLink, schema: str, *, migrate: bool, create: bool, read_only: bool) -> None:
    """Bring the schema up to date.

    Raises:
        SchemaTooNew: a newer release was here.
        UsageError: it is not ours, or not up to date and may not be changed.
    """
    ours = PostgresSchema(link, schema)
    missing = f"there is no schema {schema!r} of perdure in this database"
    if is_ready(ours, migrations("postgres"), migrate=migrate, create=create, read_only=read_only, missing=missing):
        return
    link.deadline_s = _MIGRATION_S
    deadline = time.monotonic() + _MIGRATION_S
    while True:
        try:
            _upgrade(link, ours, schema)
        except psycopg.Error as error:
            link.rollback()
            if fault(error) not in (Fault.AGAIN, Fault.BLOCKED) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)  # let those through who wait behind us
        else:
            return


def _upgrade(link: PostgresLink, ours: PostgresSchema, schema: str) -> None:
    """Migrate in one transaction, under the lock.

    Raises:
        psycopg.Error: a lock was not to be had soon; or whatever else is wrong.
    """
    link.begin()
    link.execute("unlimited")
    link.execute("lock_schema", schema)
    if ours.applied() is None:
        link.script(in_schema(bootstrap("postgres"), schema))
    upgrade(ours, migrations("postgres"), allowed=True)
    link.commit()


def check(found: Given, durability: str) -> None:
    """Refuse a server that does not give what is promised.

    Raises:
        UsageError: with what to do.
    """
    if found.version_number < OLDEST:
        message = f"PostgreSQL {found.version} is too old: 15 or later is needed"
        raise UsageError(message)
    if found.encoding != "UTF8":
        message = f"the database has the encoding {found.encoding}: UTF8 is needed"
        raise UsageError(message, hint="createdb --encoding=UTF8 --template=template0 NAME")
    for problem in problems(found, durability):
        message = f"durability {durability!r} is not what this server gives: {problem}"
        raise UsageError(message, hint="change the setting, or ask for less with durability=...")


def problems(found: Given, durability: str) -> list[str]:
    """Return why a server does not give a durability."""
    if durability == "process":
        return []
    wrong = [
        f"{name} is off" for name, value in (("fsync", found.fsync), ("full_page_writes", found.full_page_writes))
        if value != "on"
    ]  # fmt: skip
    if found.data_sync_retry == "on":
        wrong.append("data_sync_retry is on, so that an error of the disk may be passed over")
    if found.synchronous_commit == "off":
        wrong.append("synchronous_commit is off")
    if durability == "quorum":
        if not found.standbys:
            wrong.append("synchronous_standby_names is empty")
        if found.synchronous_commit not in ("on", "remote_apply"):
            wrong.append(f"synchronous_commit is {found.synchronous_commit}")
    return wrong
