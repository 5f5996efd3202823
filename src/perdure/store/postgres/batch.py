"""The hot path of a commit: a batch as a few statements in one round trip.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order. Whatever is unusual
(a taken place, a state that moved, an id that exists) is an error of the server, which ends the transaction before the
COMMIT that is already on its way; `perdure.store.settle` then does the batch again with its eyes open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.write import Append, Create, Purge, Send, Upgrade
from perdure.store.postgres.array import BLOBS, NUMBERS, TEXTS, blobs, numbers, texts
from perdure.store.postgres.link import Call, Statement, call
from perdure.store.settle import Doubt
from perdure.store.tails import Tails
from perdure.store.upgrade import rebinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event
    from perdure.model.write import Change, Write
    from perdure.store.postgres.link import PostgresLink

_T, _N, _B = (TEXTS, texts), (NUMBERS, numbers), (BLOBS, blobs)
_COLUMNS = {
    "insert_event": (_T, _N, _T, _T, _T, _T, _N, _N, _N, _N, _T, _N, _B, _B, _B, _B),
    "insert_run": (_T, _T, _T, _T, _T, _N, _N, _T, _N, _N, _N, _N, _T, _T, _N, _N, _T, _N, _T),
    "change_run": (_T, _T, _N, _T, _N, _T, _N, _N, _T, _N),
    "check_places": (_T, _N),
    "check_free": (_T,),
    "check_versions": (_N,),
    "insert_tag": (_T, _T, _T),
    "take_message": (_T, _N),
    "take_key": (_T, _T, _T),
}
_PURGED = ("purge_event", "purge_inbox", "purge_tag", "purge_key", "purge_slot", "purge_run")
Statements = dict[str, Statement]


def statements(sql: dict[str, str]) -> Statements:
    """Return every named statement with the types of its parameters."""
    return {
        name: Statement(text, [kind for kind, _ in _COLUMNS.get(name, ())])
        for name, text in sql.items()
        if not name.startswith(("and_", "by_", "newest"))
    }


def apply(link: PostgresLink, known: Statements, batch: Sequence[Write], tails: Tails) -> None:
    """Commit a batch, all of it or nothing, and remember the ends of its logs in ``tails``."""
    writing = Batch(known, tails)
    writing.add(batch)
    link.run([*link.opening, *writing.calls, Call(known["commit"])], committing=True)
    tails.update(writing.ends)
    tails.count(sum(isinstance(write, Append) for write in batch), writing.misses)


def attempt(link: PostgresLink, known: Statements, writes: Sequence[Write]) -> None:
    """Apply writes inside the open transaction, all of them or none."""
    writing = Batch(known, Tails())
    if isinstance(writes[0], Upgrade):
        writing.upgrade(writes[0])
    else:
        writing.add(writes)
    try:
        link.run([Call(known["savepoint"]), *writing.calls, Call(known["release"])])
    except Exception:
        if link.usable:
            link.run([Call(known["undo"]), Call(known["release"])])
        raise


class Batch:
    """Writes as calls.

    Attributes:
        calls: what to run, in order.
        ends: the last seq of each log once it is done.
    """

    def __init__(self, known: Statements, tails: Tails) -> None:
        self._known = known
        self._tails = tails
        self.calls: list[Call] = []
        self.ends: dict[str, int] = {}
        self.misses: int = 0
        """Appends whose place had to be looked up."""
        self._clear()

    def _clear(self) -> None:
        self._touched: set[str] = set()
        self._events: list[Event] = []
        self._creates: list[Create] = []
        self._changes: list[tuple[str, Change]] = []
        self._consumed: list[tuple[str, int]] = []
        self._unsure: list[tuple[str, int]] = []

    def add(self, batch: Sequence[Write]) -> None:
        """Add writes.

        Raises:
            Doubt: one of them cannot be applied blindly.
            Exception: a value that cannot be stored.
        """
        for write in batch:
            if isinstance(write, Append):
                self._append(write)
            elif isinstance(write, Create):
                if write.row.id in self._touched:
                    raise Doubt  # grouped, an append before it would see a run that was not there
                self._touched.add(write.row.id)
                self._creates.append(write)
                self._events += write.events
                self.ends[write.row.id] = len(write.events)
            elif isinstance(write, Send):
                self._apart(write.message.run_id)
                run_id, _, kind, sent_at, detail = write.message
                self.calls.append(call(self._known["send"], (run_id, kind, sent_at, detail)))
            elif isinstance(write, Purge):
                self._apart(write.run_id)
                self._purge(write)
            else:
                raise Doubt  # it comes alone
        self._flush()

    def upgrade(self, write: Upgrade) -> None:
        """Add an upgrade, which has been looked at."""
        self.add([write.append])
        self.calls.extend(call(self._known[name], values) for name, *values in rebinding(write))

    def _append(self, write: Append) -> None:
        run_id, new, change, taken = write
        self._events += new
        before = new[0].seq - 1
        known = self.ends.get(run_id) or self._tails.get(run_id)
        if known != before:
            self._unsure.append((run_id, before))
            self.misses += 1
        self.ends[run_id] = before + len(new)
        self._touched.add(run_id)
        if change is not None:
            self._changes.append((run_id, change))
        if taken:
            self._consumed.extend((run_id, n) for n in taken)

    def _apart(self, run_id: str) -> None:
        """Keep what follows apart from what came before it for the same run."""
        if run_id in self._touched:
            self._flush()

    def _purge(self, write: Purge) -> None:
        run_id, at, actor, reason = write
        self.ends.pop(run_id, None)
        self.calls.append(call(self._known["insert_request"], (run_id, at, actor, reason)))
        self.calls.extend(call(self._known[name], (run_id,)) for name in _PURGED)

    def _flush(self) -> None:
        if self._creates:
            self._create()
        if self._events:
            self._call("insert_event", self._events)
        if self._unsure:
            self._call("check_places", self._unsure)
        if self._changes:
            self._change()
        if self._consumed:
            self._call("take_message", self._consumed)
        self._clear()

    def _create(self) -> None:
        creates = self._creates
        if any(create.row.partition_key is not None for create in creates):
            creates.sort(key=lambda create: create.row.partition_key or "")  # all join lanes in one order
        self._call("insert_run", [create.row for create in creates], self._claimed_from(creates))
        stale = [(create.row.id,) for create in self._creates if not create.fresh]
        if stale:
            self._call("check_free", stale)
        counts = {create.version_count for create in creates if create.version_count is not None}
        if counts:
            self._call("check_versions", [(count,) for count in counts])
        tags = [(key, value, create.row.id) for create in self._creates for key, value in create.tags]
        if tags:
            self._call("insert_tag", tags)
        keys = [(one.row.queue, one.deduplication_key, one.row.id) for one in creates if one.deduplication_key]
        if keys:
            self._call("take_key", keys)

    @staticmethod
    def _claimed_from(creates: Sequence[Create]) -> tuple[str, ...]:
        """Return the queues of the runs that are claimed as they are created."""
        return tuple({create.row.queue for create in creates if create.row.owner is not None})

    def _change(self) -> None:
        """Change rows; no run may be twice in one statement, and all take them in one order, or they would deadlock."""
        changes = self._changes
        while changes:
            now: dict[str, Change] = {}
            later: list[tuple[str, Change]] = []
            for run_id, change in changes:
                if run_id in now:
                    later.append((run_id, change))
                else:
                    now[run_id] = change
            self._call("change_run", [_columns(run_id, now[run_id]) for run_id in sorted(now)])
            changes = later

    def _call(self, name: str, rows: Sequence[Sequence[object]], *more: Sequence[object]) -> None:
        """Add a statement that takes a column of each value of ``rows``, and what else is given."""
        columns = (*zip(*rows, strict=True), *more)
        values = [encode(column) for (_, encode), column in zip(_COLUMNS[name], columns, strict=True)]
        self.calls.append(Call(self._known[name], values))


def _columns(run_id: str, change: Change) -> tuple[str | int | None, ...]:
    before, epoch_before, after, epoch, owner, wake_at, inbox_seen, detail, at = change
    return run_id, before, epoch_before, after, epoch, owner, wake_at, inbox_seen, detail, at
