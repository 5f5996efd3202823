"""A second seam, for moving a whole store: its rows as they are, read in order and written in bulk. See ADR 0018.

A backend has it if there is a ``bulk`` module in its package, with ``open_bulk(url, *, writing)``. Rows have the same
columns in the same order everywhere. What a backend derives for itself (numbers of runs, the table of tags, indexes) is
not among them: it is made again where the rows are written.

While a source is open nobody can write to it. A target is marked before the first row comes and unmarked after the
last: meanwhile every release refuses to open it as a store, because its schema claims to be newer than any.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from perdure.errors import UsageError
from perdure.model.event import Event
from perdure.model.run import Message, RunRow, Tombstone, WorkerRow
from perdure.model.url import shown_url
from perdure.store.base import backend_of
from perdure.store.catalog.plans import ItemRow, PlanRow
from perdure.store.catalog.rows import AliasRow, ChangeRow, LabelRow, ReleaseRow, RouteRow, VersionRow
from perdure.store.migrate import UNFINISHED
from perdure.store.upgrade import UpgradeRow
from perdure.version.manifest import Blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Row = tuple[Any, ...]
Key = tuple[Any, ...]
MARK_NUMBER = 9999
MARK_NAME = UNFINISHED
"""The row of ``schema_migration`` that marks a target."""


class Table(NamedTuple):
    """Rows of one kind."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """What rows are ordered and found by; those of ``run`` are in the order in which they were created."""
    remade: bool = False
    """Adding a run makes rows of this table; those that are moved replace them."""

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)


_LANE = ("queue", "code", "priority", "partition_key")
TABLES = (
    Table("request", Tombstone._fields, ("run_id",)),
    Table("worker", WorkerRow._fields, ("id",)),
    Table("run", RunRow._fields, ("id",)),
    Table("event", Event._fields, ("run_id", "seq")),
    Table("inbox", Message._fields, ("run_id", "n")),
    Table("run_upgrade", UpgradeRow._fields, ("run_id", "new_epoch")),
    Table("upgrade_plan", PlanRow._fields, ("id",)),
    Table("upgrade_item", ItemRow._fields, ("plan_id", "n")),
    Table(
        "queue",
        (
            "name", "concurrency", "concurrency_per_worker", "concurrency_per_key", "rate_limit", "rate_us",
            "ageing_us", "fair", "hold_while_waiting", "paused", "declared", "changed_at", "changes",
        ),
        ("name",),
    ),
    Table("queue_change", ("queue", "n", "at", "actor", "reason", "commit_id", "change"), ("queue", "n")),
    Table("queue_start", ("queue", "at", "n"), ("queue", "at")),
    Table("deduplication", ("queue", "key", "run_id"), ("queue", "key")),
    Table("slot", ("run_id", "queue", "epoch"), ("run_id",)),
    Table("lane", (*_LANE, "turn_at"), _LANE, remade=True),
    Table("definition_blob", (*Blob._fields, "created_at"), ("sha256",)),
    Table("release_tree", ReleaseRow._fields, ("id",)),
    Table("definition_version", VersionRow._fields, ("id",)),
    Table("version_label", LabelRow._fields, ("seq",)),
    Table("definition_alias", AliasRow._fields, ("sha256", "scheme", "version_id")),
    Table("version_change", ChangeRow._fields, ("n",)),
    Table("route", RouteRow._fields, ("workflow", "channel", "revision")),
)  # fmt: skip
"""What is moved, in this order: an event and a message belong to a run, a label to a version, that to a release."""
DERIVED = frozenset({"tag", "event_log", "schema_migration", "meta", "refusal"})
"""Tables that each backend fills by itself."""
COUNTS = (
    "select count(*), coalesce(sum(epoch), 0), coalesce(sum(inbox_n), 0) from {run}",
    "select count(*) from {event}",
    "select count(*) from {request}",
    "select count(*) from {inbox}",
    "select coalesce(sum(changes), 0) from {queue}",
    "select count(*) from {definition_blob}",
    "select count(*) from {version_change}",
    "select count(*) from {upgrade_plan}",
)
"""What changes whenever anything in a store changes: logs and tombstones only grow, messages are counted.

Contents of files may be removed and others added, which nobody takes for the same: each is compared in the end."""


class Bulk(Protocol):
    """All rows of one store. Used by one thread."""

    now: int
    """The database's clock when it was opened, in microseconds."""
    translate: Callable[[Exception], Exception | None]
    """What to raise instead of an error of the driver; None if it is not one."""

    def counts(self) -> tuple[int, ...]:
        """Return what `COUNTS` gives: it differs once anything has changed."""
        ...

    def live(self) -> list[str]:
        """Return the names of workers whose lease has not ended."""
        ...

    def rows(self, table: Table, after: Key | None = None) -> Iterator[Row]:
        """Yield the rows of a table behind a key, in order, one at a time: never more than one page in memory.

        One table at a time: the iterator is used up, or closed, before anything else is asked.
        """
        ...

    def last(self, table: Table) -> Key | None:
        """Return the key of the last row."""
        ...

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows in one transaction, durably.

        Raises:
            StoreError: a row does not fit, or is there already.
        """
        ...

    def mark(self) -> str | None:
        """Return what the store was marked with; None if it is not marked."""
        ...

    def set_mark(self, text: str | None) -> None:
        """Mark the store, or take the mark away and note how far the clock has to have come."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


def open_bulk(url: str, *, writing: bool) -> Bulk:
    """Open the store that a URL names, which has to be there and of this release.

    Args:
        url: the store.
        writing: it is the target; else it is locked against writes of anybody.

    Raises:
        UsageError: it is not there, not of this release, or its kind cannot be moved.
        StoreUnavailable: somebody else is writing, or it cannot be reached.
    """
    backend = backend_of(url)
    try:
        module = import_module(f"perdure.store.{backend}.bulk")
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("perdure"):
            message = f"{backend}:// needs a driver: pip install 'perdure[{backend}]'"
            raise UsageError(message) from None
        message = f"{shown_url(url)}: a store of this kind cannot be copied"
        raise UsageError(message, hint="expected sqlite:///file.db, postgresql://... or mysql://...") from None
    with translating(module.translate):
        opened: Bulk = module.open_bulk(url, writing=writing)
    return opened


@contextmanager
def translating(translate: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """Raise what an error of a driver means in its place."""
    try:
        yield
    except Exception as error:
        meant = translate(error)
        if meant is None:
            raise
        raise meant from error


def tags_of(table: Table, rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return the tags of runs: key, value, run."""
    of_run, of_tags = table.columns.index("id"), table.columns.index("tags")
    return [
        (key, value, row[of_run])
        for row in rows
        if row[of_tags]
        for key, value in msgspec.json.decode(row[of_tags]).items()
    ]


def buried(row: Row) -> Row:
    """Return a worker's row as it is moved: nobody lives through a move."""
    worker = WorkerRow._make(row)
    return tuple(worker._replace(state="dead") if worker.state == "live" else worker)


class Statements:
    """The statements of one backend, made of the tables' columns.

    Args:
        quote: returns a name as the backend quotes it.
        place: returns a table's name with what has to stand before it.
    """

    def __init__(self, quote: str, place: str = "{}") -> None:
        self._quote = quote
        self._place = place

    def named(self, names: Iterable[str], before: str = "") -> str:
        """Return names of columns, quoted."""
        return ", ".join(f"{before}{self._quote}{name}{self._quote}" for name in names)

    def table(self, name: str) -> str:
        """Return a table's name."""
        return self._place.format(f"{self._quote}{name}{self._quote}")

    def select(self, table: Table, holder: str, *, after: bool) -> str:
        """Return what reads a table in order, behind a key if there is one."""
        key = self.named(table.key)
        holders = ", ".join([holder] * len(table.key))
        where = f"where ({key}) > ({holders})" if after else ""
        return f"select {self.named(table.columns)} from {self.table(table.name)} {where} order by {key}"  # noqa: S608

    def last(self, table: Table) -> str:
        """Return what finds the last key."""
        order = ", ".join(f"{self.named([name])} desc" for name in table.key)
        return f"select {self.named(table.key)} from {self.table(table.name)} order by {order} limit 1"  # noqa: S608

    def count_versions(self) -> str:
        """Return what makes the count of changes of versions anew, where nobody has read it yet."""
        count = f"select count(*) from {self.table('version_change')}"  # noqa: S608
        return f"update {self.table('meta')} set version_count = ({count})"  # noqa: S608

    def counts(self, log: str = "event") -> tuple[str, ...]:
        """Return what counts a store."""
        names = {table.name: self.table(table.name) for table in TABLES} | {"event": self.table(log)}
        return tuple(sql.format_map(names) for sql in COUNTS)
