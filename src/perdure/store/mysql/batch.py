"""The hot path of a commit: a batch as a few statements in one packet, COMMIT included.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order. Whatever is unusual
(a taken place, a state that moved, an id that exists) is an error of the server, at which it reads no further: it never
gets to the COMMIT. `perdure.store.settle` then does the batch again with its eyes open.

Rows of runs are changed before rows are added to their logs. The other way round the foreign key would first lock them
for reading, and two who both want to change them after that wait for each other for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.model.write import Append, Create, Purge, Send, Upgrade
from perdure.store.mysql import fault
from perdure.store.mysql.literal import Raw, event_row, literal, row
from perdure.store.server.dialect import Fault
from perdure.store.settle import Doubt
from perdure.store.tails import Tails
from perdure.store.upgrade import rebinding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.model.event import Event
    from perdure.model.write import Change, Write
    from perdure.store.mysql.link import MysqlLink
    from perdure.store.mysql.statement import Statement

Statements = dict[str, "Statement"]
_WAKEABLE = frozenset({"pending", "waiting"})
_CHUNK_BYTES = 1 << 20
"""A statement of many rows is cut at about this size, and at the size of a packet."""
_CHUNK_CHANGES = 100
"""Rows that one statement changes: the server looks up each of them in a list that long."""


class Head(NamedTuple):
    """What changes of runs have to have in common to be one statement."""

    before: str
    epoch_before: int
    after: str
    epoch: int
    owner: str | None
    inbox_seen: int


def apply(link: MysqlLink, known: Statements, batch: Sequence[Write], tails: Tails) -> None:
    """Commit a batch, all of it or nothing, and remember the ends of its logs in ``tails``."""
    writing = Batch(known, tails, link.max_packet)
    writing.add(batch)
    if len(writing.statements) == 1:
        link.run(writing.statements, alone=True)
    else:
        link.begin()
        link.run(writing.statements, committing=True)
    tails.update(writing.ends)
    tails.count(sum(isinstance(write, Append) for write in batch), writing.misses)


def attempt(link: MysqlLink, known: Statements, writes: Sequence[Write]) -> None:
    """Apply writes inside the open transaction, all of them or none."""
    writing = Batch(known, Tails(), link.max_packet)
    if isinstance(writes[0], Upgrade):
        writing.upgrade(writes[0])
    else:
        writing.add(writes)
    try:
        link.run([known["savepoint"].fill(), *writing.statements, known["release"].fill()])
    except Exception as error:
        # After any other fault the savepoint may be gone, and what followed would be a transaction by itself.
        if link.usable and fault.fault(error) is Fault.WRITE and not isinstance(error, fault.TooLarge):
            link.run([known["undo"].fill(), known["release"].fill()])
        raise


class Batch:
    """Writes as statements.

    Attributes:
        statements: what to run, in order.
        ends: the last seq of each log once it is done.
    """

    def __init__(self, known: Statements, tails: Tails, max_packet: int) -> None:
        self._known = known
        self._tails = tails
        self._most = min(_CHUNK_BYTES, max_packet)
        self.statements: list[bytes] = []
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
                self._send(write)
            elif isinstance(write, Purge):
                self._apart(write.run_id)
                self._purge(write)
            else:
                raise Doubt  # it comes alone
        self._flush()

    def upgrade(self, write: Upgrade) -> None:
        """Add an upgrade, which has been looked at."""
        self.add([write.append])
        for name, *values in rebinding(write):
            self._run(name, *values)

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

    def _send(self, write: Send) -> None:
        run_id, _, kind, sent_at, detail = write.message
        self._run("send", run_id)
        self._run("check_count", 1)
        self._run("insert_message", kind, sent_at, detail, run_id)

    def _purge(self, write: Purge) -> None:
        run_id, at, actor, reason = write
        self.ends.pop(run_id, None)
        self._run("insert_request", at, actor, reason, run_id)
        self._run("check_count", 1)
        for name in ("purge_event", "purge_inbox", "purge_tag", "purge_key", "purge_slot", "purge_run"):
            self._run(name, run_id)

    def _flush(self) -> None:
        if self._creates:
            self._create()
        if self._changes:
            self._change()
        if self._events:
            self._texts("insert_event", list(map(event_row, self._events)))
        if self._unsure:
            tail = self._known["check_places_end"].fill()
            self._rows("check_places", self._unsure, lambda count: tail + b" %d" % count)
        if self._consumed:
            self._rows("take_message", self._consumed, lambda _: b")")
        self._clear()

    def _create(self) -> None:
        # The last column is the queue where there is a wake-up time.
        creates = self._creates
        if any(create.row.partition_key is not None for create in creates):
            creates.sort(key=lambda create: create.row.partition_key or "")  # all join lanes in one order
        rows = [(*create.row, None if create.row.wake_at is None else create.row.queue) for create in creates]
        self._rows("insert_run", rows)
        claimed = tuple({create.row.queue for create in creates if create.row.owner is not None})
        if claimed:
            self._run("check_open", claimed)
        stale = tuple(create.row.id for create in creates if not create.fresh)
        if stale:
            self._run("check_free", stale)
        for count in {create.version_count for create in creates if create.version_count is not None}:
            self._run("check_versions", count)
        fill = self._known["tag_row"].fill
        tags = [fill((key, value, create.row.id)) for create in self._creates for key, value in create.tags]
        if tags:
            self._texts("insert_tag", tags)
        for create in creates:
            if create.deduplication_key is not None:
                self._run("free_key", create.row.queue, create.deduplication_key)
                self._run("take_key", create.row.queue, create.deduplication_key, create.row.id)

    def _change(self) -> None:
        """Change rows: those that become alike in one statement, no run twice in it, and all in one order."""
        changes = self._changes
        while changes:
            now: dict[str, Change] = {}
            later: list[tuple[str, Change]] = []
            for run_id, change in changes:
                if run_id in now:
                    later.append((run_id, change))
                else:
                    now[run_id] = change
            alike: dict[Head, list[str]] = {}
            for run_id in sorted(now):
                before, epoch_before, after, epoch, owner, _, inbox_seen, _, _ = now[run_id]
                alike.setdefault(Head(before, epoch_before, after, epoch, owner, inbox_seen), []).append(run_id)
            for head, run_ids in alike.items():
                for start in range(0, len(run_ids), _CHUNK_CHANGES):
                    self._change_alike(head, {one: now[one] for one in run_ids[start : start + _CHUNK_CHANGES]})
            changes = later

    def _change_alike(self, head: Head, changes: dict[str, Change]) -> None:
        def each(place: int) -> bytes:
            """Return one value if it is the same for all, else one by run."""
            values = {change[place] for change in changes.values()}
            if len(values) == 1:
                return literal(values.pop())
            cases = [b"when %b then %b" % (literal(one), literal(change[place])) for one, change in changes.items()]
            return b"case id " + b" ".join(cases) + b" end"

        wake_at, detail, at = each(5), each(7), each(8)
        if head.after in _WAKEABLE:
            wake = self._known["change_wake"].fill((head.inbox_seen, Raw(wake_at), Raw(wake_at)))
        else:
            wake = b"wake_at = null, due_queue = null"
        become = (Raw(wake), head.after, head.epoch, head.owner, Raw(detail), Raw(at))
        was = (tuple(changes), head.before, head.epoch_before)
        self.statements.append(self._known["change_run"].fill((*become, *was)))
        self._run("check_count", len(changes))

    def _run(self, name: str, *values: str | bytes | int | tuple[str, ...] | None) -> None:
        self.statements.append(self._known[name].fill(values))

    def _rows(
        self,
        name: str,
        rows: Sequence[Sequence[str | bytes | int | None]],
        tail: Callable[[int], bytes] = lambda _: b"",
    ) -> None:
        """Add a statement of many rows."""
        self._texts(name, list(map(row, rows)), tail)

    def _texts(self, name: str, texts: Sequence[bytes], tail: Callable[[int], bytes] = lambda _: b"") -> None:
        """Add a statement of rows that are SQL already; more than one statement if they are too large for one."""
        head, start, size = self._known[name].fill(), 0, 0
        for place, text in enumerate(texts):
            if place > start and size + len(text) > self._most:
                self.statements.append(head + b",".join(texts[start:place]) + tail(place - start))
                start, size = place, 0
            size += len(text) + 1
        self.statements.append(head + b",".join(texts[start:]) + tail(len(texts) - start))
