"""Copies a store: checks the source, moves its rows table by table, compares both, checks the target.

INV-1  Nobody can write to the source meanwhile, and nobody can open the target.
INV-2  The target's rows are always a beginning of the source's, table by table, so a copy that was cut off goes on
       behind the last row of each. It does so only if the source has not changed since.
INV-3  The mark is taken off the target only after every row was compared and the target was found sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from itertools import zip_longest
from typing import NamedTuple

from perdure.errors import StoreCorrupt, UsageError
from perdure.model.url import shown_url
from perdure.store.base import StoreOptions, open_store
from perdure.store.bulk import TABLES, Bulk, Row, Table, open_bulk, translating
from perdure.verify.database import verify

_MOST_ROWS = 2_000
_MOST_BYTES = 4 << 20
"""What is written in one transaction, and so kept in memory; a single row may be larger."""
_ROW_BYTES = 100
Tell = Callable[[str, int], None]
"""(what is done, rows so far)."""


class Copied(NamedTuple):
    """What was moved."""

    runs: int
    events: int
    tombstones: int
    messages: int
    resumed: bool
    """A copy that was cut off was finished."""
    behind_s: float
    """How far the target's clock is behind the source's."""


def copy(source_url: str, target_url: str, tell: Tell) -> Copied:
    """Copy the store at ``source_url`` into the empty, or missing, one at ``target_url``.

    Raises:
        UsageError: the target holds something; the source has live workers, or is not of this release; they are one.
        StoreCorrupt: the source is not sound, or the target is not what the source is.
        StoreUnavailable: one of them cannot be reached, or somebody is writing to the source.
    """
    if source_url == target_url:
        message = "the target is the source"
        raise UsageError(message)
    with closing(open_bulk(source_url, writing=False)) as source, translating(source.translate):
        _refuse_workers(source, source_url)
        _check(source_url, "source", tell)
        counts = source.counts()
        resumed = _prepare(target_url, _digest(counts))
        with closing(open_bulk(target_url, writing=True)) as target, translating(target.translate):
            for table in TABLES:
                _move(source, target, table, tell)
            for table in TABLES:
                _compare(source, target, table, tell)
            _check(target_url, "target", tell)
            target.set_mark(None)
            behind_s = (source.now - target.now) / 1e6
    runs, _, _, events, tombstones, messages, *_ = counts
    return Copied(runs, events, tombstones, messages, resumed, behind_s)


def _refuse_workers(store: Bulk, url: str) -> None:
    names = store.live()
    if names:
        message = f"{shown_url(url)}: live workers are registered there: {', '.join(names)}"
        raise UsageError(message, hint="stop them; the lease of one that was killed ends by itself within seconds")


def _check(url: str, which: str, tell: Tell) -> None:
    tell(f"checking the {which}", 0)
    report = verify(url)
    if not report.sound:
        message = f"the {which} has {len(report.findings)} findings, the first: {report.findings[0]}"
        raise StoreCorrupt(message, hint=f"see `perdure verify --db {shown_url(url)}`")


def _digest(counts: tuple[int, ...]) -> str:
    return sha256(repr(counts).encode()).hexdigest()


def _prepare(url: str, digest: str) -> bool:
    """Make the target's schema and mark it; say whether it was marked already, by a copy that was cut off."""
    if _is_marked(url, digest):
        return True
    store = open_store(url, StoreOptions())
    store.open()
    store.close()
    with closing(open_bulk(url, writing=True)) as target, translating(target.translate):
        _refuse_workers(target, url)
        if any(target.last(table) for table in TABLES if table.name != "worker"):
            message = f"{shown_url(url)}: the target is not empty"
            raise UsageError(message, hint="name an empty database; two stores cannot be joined into one")
        target.set_mark(digest)
    return False


def _is_marked(url: str, digest: str) -> bool:
    try:
        target = open_bulk(url, writing=True)
    except UsageError:
        return False  # not there yet, or said better by whoever opens it as a store
    with closing(target), translating(target.translate):
        mark = target.mark()
    if mark is not None and mark != digest:
        message = f"{shown_url(url)}: holds a part of another store, or of an earlier state of this one"
        raise UsageError(message, hint="the source has changed since: empty the target and copy anew")
    return mark is not None


def _move(source: Bulk, target: Bulk, table: Table, tell: Tell) -> None:
    total = 0
    after = None if table.remade else target.last(table)
    for rows in _parts(source.rows(table, after)):
        target.write(table, rows)
        total += len(rows)
        tell(f"copying {table.name}", total)


def _parts(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in parts of bounded size."""
    part: list[Row] = []
    size = 0
    for row in rows:
        part.append(row)
        size += _ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(part) >= _MOST_ROWS or size >= _MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _compare(source: Bulk, target: Bulk, table: Table, tell: Tell) -> None:
    """Compare every row, the chain of every event among it, in both directions.

    Raises:
        StoreCorrupt: they differ.
    """
    if table.name == "worker":
        return  # nobody lives through a move
    count = 0
    for count, (there, here) in enumerate(zip_longest(source.rows(table), target.rows(table)), start=1):
        if there != here:
            row = there or here
            message = f"{table.name} {row and table.key_of(row)} is not the same in both"
            raise StoreCorrupt(message, hint="somebody else writes to the target: empty it and copy anew")
        if count % _MOST_ROWS == 0:
            tell(f"comparing {table.name}", count)
    tell(f"comparing {table.name}", count)
