"""The rows of an SQLite file, read in one snapshot, whatever state the file is in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from perdure.errors import StoreCorrupt, UsageError
from perdure.verify.evidence import CHANGES, LANES, QUEUES, SLOTS, Case, Fact, Grave, QueueFacts, Standing, queue_facts
from perdure.verify.schema import check_schema

_LAST_MIGRATION = 6
"""Whose tables are read here."""
_RUNS = """
    select no, id, status, wake_at, owner, epoch, inbox_n, tags, created_at, updated_at, queue, workflow, priority,
        partition_key, version_id
    from run order by no
"""
_FACTS = """
    select run_no, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload,
        chain
    from event_log order by run_no, seq
"""
_STRAYS = {
    "event_log": "select distinct run_no from event_log where run_no not in (select no from run)",
    "inbox": "select distinct run_id from inbox where run_id not in (select id from run)",
    "tag": "select distinct run_id from tag where run_id not in (select id from run)",
    "slot": "select run_id from slot where run_id not in (select id from run)",
    "deduplication": "select run_id from deduplication where run_id not in (select id from run)",
}


class SqliteEvidence:
    """`perdure.verify.evidence.Evidence` of one open connection, inside a read transaction."""

    slack_us = 0
    """All who write to a file share one clock (`perdure.store.sqlite.clock`)."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._trouble: list[str] = []

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows as far as they can be read."""
        try:
            yield from self._connection.cursor().execute(sql)
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            self._trouble.append(f"cannot read on: {error}")

    def damage(self) -> Iterator[str]:
        """Yield what SQLite finds wrong with the file. To be asked last: it knows then what could not be read."""
        for (text,) in self._rows("pragma integrity_check(20)"):
            if text != "ok":
                yield str(text)
        yield from self._trouble

    def cases(self) -> Iterator[Case]:
        """Yield every run, in the order they were created."""
        waiting: defaultdict[str, list[int]] = defaultdict(list)
        for run_id, n in self._rows("select run_id, n from inbox order by run_id, n"):
            waiting[run_id].append(n)
        tags: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for run_id, key, value in self._rows("select run_id, key, value from tag"):
            tags[run_id].add((key, value))
        logs = groupby(self._rows(_FACTS), key=itemgetter(0))
        number, log = next(logs, (None, iter(())))
        for no, *columns in self._rows(_RUNS):
            while number is not None and number < no:  # a log that is read already, or belongs to no run
                number, log = next(logs, (None, iter(())))
            row = Standing._make(columns)
            facts = [Fact._make(fact[1:]) for fact in log] if number == no else []
            yield Case(row, facts, waiting.get(row.id, []), tags.get(row.id, set()))

    def graves(self) -> Iterator[Grave]:
        """Yield every tombstone."""
        return map(Grave._make, self._rows("select run_id, status from request order by run_id"))

    def strays(self) -> Iterator[tuple[str, str]]:
        """Yield table and key of rows that belong to no run."""
        for table, sql in _STRAYS.items():
            for (key,) in self._rows(sql):
                yield table, str(key)

    def queues(self) -> Iterator[QueueFacts]:
        """Yield the queues that have settings."""
        return queue_facts(self._rows(QUEUES), self._rows(CHANGES.format("change")))

    def slots(self) -> Iterator[tuple[str, int]]:
        """Yield run id and epoch of every slot."""
        yield from self._rows(SLOTS)

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement without values."""
        return self._rows(sql)

    def lanes(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield every line of runs with a partition key."""
        yield from self._rows(LANES)


@contextmanager
def opened(url: str) -> Iterator[SqliteEvidence]:
    """Lend the rows of the file that ``url`` names.

    Raises:
        UsageError: there is no such file, or it is no database of this program.
        SchemaTooNew: a newer release has migrated it.
        StoreCorrupt: the file does not even say which tables it has.
    """
    path = _path(url)
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        message = f"{path}: cannot be opened: {error}"
        raise UsageError(message) from error
    try:
        connection.set_busy_timeout(10_000)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("begin")
        _check_schema(connection, path)
        yield SqliteEvidence(connection)
    except (apsw.NotADBError, apsw.CantOpenError, apsw.IOError, apsw.BusyError) as error:
        message = f"{path}: cannot be read as a database: {error}"
        raise UsageError(message) from error
    except apsw.CorruptError as error:  # in the schema itself; in a table it is a finding
        message = f"{path}: {error}"
        raise StoreCorrupt(message) from error
    finally:
        connection.close()


def _path(url: str) -> Path:
    parts = urlsplit(url)
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "sqlite" or parts.netloc or parts.query or parts.fragment or not name:
        message = f"{url}: verify reads a file, named as sqlite:///file.db"
        raise UsageError(message)
    path = Path(name)
    if not path.is_file():
        message = f"{path}: no such file"
        raise UsageError(message)
    return path


def _check_schema(connection: apsw.Connection, path: Path) -> None:
    if not connection.table_exists("main", "schema_migration"):
        message = f"{path}: not a database of perdure"
        raise UsageError(message)
    last = connection.execute("select max(number) from schema_migration where number < 9999").get
    check_schema(str(path), last, _LAST_MIGRATION)
