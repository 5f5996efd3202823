"""Migrations, and what the server has to give."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pymysql

from perdure.errors import StoreUnavailable, UsageError
from perdure.store.migrate import Applied, bootstrap, is_ready, migrations, upgrade
from perdure.store.mysql.fault import fault
from perdure.store.server.dialect import Fault

if TYPE_CHECKING:
    from perdure.store.migrate import Migration
    from perdure.store.mysql.link import MysqlLink

OLDEST: dict[str, tuple[int, ...]] = {"MariaDB": (10, 6), "MySQL": (8, 0, 17)}
_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""What tells texts apart byte by byte, blanks at the end included."""
TABLES = (
    "run", "event", "inbox", "tag", "worker", "request", "refusal", "schema_migration",
    "lane", "queue", "queue_change", "slot", "queue_start", "deduplication", "run_upgrade", "upgrade_plan",
    "upgrade_item", "meta", "definition_blob", "release_tree", "definition_version", "version_label",
    "definition_alias", "version_change", "route",
)  # fmt: skip
_VARIABLES = (
    "version", "version_comment", "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method",
    "innodb_force_recovery", "log_bin", "sync_binlog", "binlog_format", "read_only", "max_allowed_packet",
    "max_connections",
    "tx_isolation", "transaction_isolation", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point", "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_source_timeout", "rpl_semi_sync_master_wait_no_slave", "rpl_semi_sync_source_wait_no_replica",
)  # fmt: skip
_STATUS = (
    "Rpl_semi_sync_master_status", "Rpl_semi_sync_source_status",
    "Rpl_semi_sync_master_clients", "Rpl_semi_sync_source_clients",
)  # fmt: skip
_MIGRATION_S = 3600.0
_PATIENCE_S, _USUAL_PATIENCE_S = 2, 86400
_PAUSE_S = 0.5
_SEMI_SYNC_MS = 3_600_000
"""A primary that goes on alone after less than this does not keep to its promise when a replica is slow."""
Given = dict[str, str]


def given(link: MysqlLink) -> Given:
    """Ask the server what it and this session are set to."""
    settings, counters = link.many(("variables", _VARIABLES), ("status_of_server", _STATUS))
    rows: Any = settings.rows + counters.rows
    return {name.lower(): value for name, value in rows}


def server_of(found: Given) -> tuple[str, tuple[int, ...]]:
    """Return what the server is and its version."""
    text = found["version"]
    kind = "MariaDB" if "mariadb" in (text + found.get("version_comment", "")).lower() else "MySQL"
    numbers = re.findall(r"\d+", text.removeprefix("5.5.5-"))
    return kind, tuple(int(number) for number in numbers[:3])


class MysqlSchema:
    """`perdure.store.migrate.Schema` on one connection, which holds the lock.

    A statement that changes the schema ends the transaction, so a migration is not one: each can be run again, and is
    recorded after its last statement.
    """

    def __init__(self, link: MysqlLink) -> None:
        self._link = link

    def applied(self) -> list[Applied] | None:
        """Return what was applied; None for a database without a schema of ours."""
        found: Any = self._link.execute("our_tables", TABLES).rows
        tables = {name for name, _, _ in found}
        for name, engine, collation in found:
            if "schema_migration" in tables and collation not in _COLLATIONS:
                message = f"table {name!r} has the collation {collation}, to which different ids may be the same"
                raise UsageError(message, hint=f"it was made with {' or '.join(_COLLATIONS)}")
            if engine != "InnoDB":
                message = f"table {name!r} is kept by {engine}, which knows no transactions"
                raise UsageError(message, hint=f"alter table {name} engine = innodb")
        if "schema_migration" in tables:
            rows: Any = self._link.execute("migrations").rows
            return [Applied._make(row) for row in rows]
        if tables:
            message = f"the database has a table {min(tables)!r} that perdure did not make"
            raise UsageError(message, hint="use a database of its own: create database perdure")
        return None

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        return [row[0] for row in self._link.execute("live_workers").rows]

    def apply(self, migration: Migration) -> None:
        """Run a migration and record it."""
        self._link.script(migration.sql)
        self._link.execute("note_migration", migration.number, migration.name, migration.checksum)


def prepare(link: MysqlLink, *, migrate: bool, create: bool, read_only: bool) -> None:
    """Bring the schema up to date.

    Raises:
        SchemaTooNew: a newer release was here.
        UsageError: it is not ours, or not up to date and may not be changed.
    """
    ours = MysqlSchema(link)
    missing = "there are no tables of perdure in this database"
    if is_ready(ours, migrations("mysql"), migrate=migrate, create=create, read_only=read_only, missing=missing):
        return
    link.deadline_s = _MIGRATION_S
    if link.execute("lock_schema", int(_MIGRATION_S) - 1).rows[0][0] != 1:
        message = "another process is migrating the database"
        raise StoreUnavailable(message)
    try:
        link.execute("patience", _PATIENCE_S)
        _upgrade(link, ours)
    finally:
        if link.usable:
            link.execute("patience", _USUAL_PATIENCE_S)
            link.execute("unlock_schema")


def _upgrade(link: MysqlLink, ours: MysqlSchema) -> None:
    """Migrate, under the lock; again and again while others use a table, with a pause in which they get on."""
    deadline = time.monotonic() + _MIGRATION_S
    while True:
        try:
            if ours.applied() is None:
                link.script(bootstrap("mysql"))
            upgrade(ours, migrations("mysql"), allowed=True)
        except pymysql.err.Error as error:
            if fault(error) not in (Fault.AGAIN, Fault.BLOCKED) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def check(found: Given, durability: str) -> None:
    """Refuse a server that does not give what is promised.

    Raises:
        UsageError: with what to do.
    """
    kind, version = server_of(found)
    if version < OLDEST[kind]:
        message = f"{kind} {found['version']} is too old: {'.'.join(map(str, OLDEST[kind]))} or later is needed"
        raise UsageError(message)
    if found.get("log_bin") == "ON" and found.get("binlog_format") == "STATEMENT":
        message = "binlog_format is STATEMENT, with which the server refuses transactions at READ COMMITTED"
        raise UsageError(message, hint="set global binlog_format = ROW")
    isolation = found.get("transaction_isolation") or found.get("tx_isolation")
    if isolation != "READ-COMMITTED":
        message = f"the session is at {isolation}, not READ COMMITTED: something in between has changed it"
        raise UsageError(message)
    for problem in problems(found, durability):
        message = f"durability {durability!r} is not what this server gives: {problem}"
        raise UsageError(message, hint="change the setting, or ask for less with durability=...")


def problems(found: Given, durability: str) -> list[str]:
    """Return why a server does not give a durability."""
    if durability == "process":
        return []
    wrong = []
    flush = found["innodb_flush_log_at_trx_commit"]
    if flush not in ("1", "3"):
        wrong.append(f"innodb_flush_log_at_trx_commit is {flush}")
    if found.get("innodb_doublewrite", "ON").upper() not in ("ON", "1", "FAST", "DETECT_AND_RECOVER"):
        wrong.append(f"innodb_doublewrite is {found['innodb_doublewrite']}")
    if found.get("innodb_flush_method", "").lower() in ("nosync", "littlesync", "async_unbuffered_nosync"):
        wrong.append(f"innodb_flush_method is {found['innodb_flush_method']}")
    if found.get("innodb_force_recovery", "0") != "0":
        wrong.append(f"innodb_force_recovery is {found['innodb_force_recovery']}")
    if found.get("log_bin") == "ON" and found.get("sync_binlog") != "1":
        wrong.append(f"sync_binlog is {found.get('sync_binlog')} while the binary log is on")
    return wrong + (_alone(found) if durability == "quorum" else [])


def replicas(found: Given) -> int:
    """Return how many replicas confirm commits now."""
    return int(found.get("rpl_semi_sync_source_clients") or found.get("rpl_semi_sync_master_clients") or 0)


def _alone(found: Given) -> list[str]:
    """Return why a commit may be confirmed that no replica has."""

    def setting(name: str) -> str | None:
        return found.get(f"rpl_semi_sync_source_{name}") or found.get(f"rpl_semi_sync_master_{name}")

    if setting("enabled") != "ON":
        return ["semi-synchronous replication is off"]
    wrong = []
    if setting("status") == "OFF":
        wrong.append("semi-synchronous replication is on, and the server has gone on without a replica")
    if "OFF" in (setting("wait_no_slave"), setting("wait_no_replica")):
        wrong.append("rpl_semi_sync_master_wait_no_slave is OFF: without a replica it does not wait")
    if setting("wait_point") != "AFTER_SYNC":
        wrong.append(f"rpl_semi_sync_master_wait_point is {setting('wait_point')}, not AFTER_SYNC")
    if int(setting("timeout") or 0) < _SEMI_SYNC_MS:
        wrong.append(f"rpl_semi_sync_master_timeout is {setting('timeout')} ms, then it goes on alone")
    return wrong
