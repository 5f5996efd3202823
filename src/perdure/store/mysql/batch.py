"""The hot path of a commit: a batch as a few statements in one packet, COMMIT included.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order. Whatever is unusual
(a taken place, a state that moved, an id that exists) is an error of the server, at which it reads no further: it never
gets to the COMMIT. `perdure.store.settle` then does the batch again with its eyes open.

Rows of runs are changed before rows are added to their logs. The other way round the foreign key would first lock them
for reading, and two who both want to change them after that wait for each other for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.store.mysql import fault
from perdure.store.mysql.literal import Raw, event_row, literal, row
from perdure.store.server.dialect import Fault
from perdure.store.server.flight import SentBatch
from perdure.store.server.gathering import PURGED, Gathering
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.model.run import Message
    from perdure.model.write import Change, Purge, Send, Write
    from perdure.store.mysql.link import MysqlLink
    from perdure.store.mysql.statement import Statement
    from perdure.store.slots import Call as Named

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
    link.run(writing.whole(link, batch), alone=writing.is_alone, committing=not writing.is_alone)
    writing.done()


def send(link: MysqlLink, known: Statements, batch: Sequence[Write], tails: Tails) -> SentBatch:
    """Have on its way what `apply` commits."""
    writing = Batch(known, tails, link.max_packet)
    statements = writing.whole(link, batch)
    return SentBatch(link, writing, link.start(statements, alone=writing.is_alone, committing=not writing.is_alone))


def attempt(link: MysqlLink, known: Statements, writes: Sequence[Write], ends: Tails, *, hurry: bool) -> None:
    """Apply writes inside the open transaction, all of them or none."""
    writing = Batch(known, ends, link.max_packet)
    writing.add_closely(writes)
    hurrying, patient = ([known[name].fill()] if hurry else [] for name in ("hurry", "patient"))
    try:
        link.run([known["savepoint"].fill(), *hurrying, *writing.statements, *patient, known["release"].fill()])
    except Exception as error:
        # After any other fault the savepoint may be gone, and what followed would be a transaction by itself.
        undone = fault.fault(error) in (Fault.WRITE, Fault.BLOCKED) and not isinstance(error, fault.TooLarge)
        if link.usable and undone:
            link.run([known["undo"].fill(), *patient, known["release"].fill()])
        raise


def conclude(link: MysqlLink, known: Statements, writes: Sequence[Write], ends: Tails, calls: Sequence[Named]) -> None:
    """Apply writes, run statements and commit, in the open transaction."""
    writing = Batch(known, ends, link.max_packet)
    writing.add(writes)
    link.run([*writing.statements, *(known[name].fill(values) for name, *values in calls)], committing=True)


class Batch(Gathering):
    """Writes as statements.

    Attributes:
        statements: what to run, in order.
    """

    def __init__(self, known: Statements, tails: Tails, max_packet: int) -> None:
        super().__init__(tails)
        self._known = known
        self._most = min(_CHUNK_BYTES, max_packet)
        self.statements: list[bytes] = []

    def whole(self, link: MysqlLink, batch: Sequence[Write]) -> list[bytes]:
        """Return a batch as a transaction of its own, begun unless it is a single statement; see `add`."""
        self.add(batch)
        if not self.is_alone:
            link.begin()
        return self.statements

    @property
    def is_alone(self) -> bool:
        """Whether it is one statement, which is a transaction by itself."""
        return len(self.statements) == 1

    def _send(self, write: Send) -> None:
        run_id, _, kind, sent_at, detail = write.message
        self._run("send", run_id)
        self._run("check_count", 1)
        self._run("insert_message", kind, sent_at, detail, run_id)

    def _tell(self, message: Message) -> None:
        run_id, _, kind, sent_at, detail = message
        self._run("send", run_id)
        self._run("insert_message", kind, sent_at, detail, run_id)

    def _purge(self, write: Purge) -> None:
        run_id, at, actor, reason = write
        self._run("insert_request", at, actor, reason, run_id)
        self._run("check_count", 1)
        for name in PURGED:
            self._run(name, run_id)

    def _flush(self) -> None:
        if self._creates:
            self._create()
        for changes in self._rounds():
            self._change(changes)
        if self._events:
            self._texts("insert_event", list(map(event_row, self._events)))
        if self._unsure:
            tail = self._known["check_places_end"].fill()
            self._rows("check_places", self._unsure, lambda count: tail + b" %d" % count)
        if self._consumed:
            self._rows("take_message", self._consumed, lambda _: b")")

    def _create(self) -> None:
        # The last column is the queue where there is a wake-up time.
        creates = self._creates
        rows = [(*create.row, None if create.row.wake_at is None else create.row.queue) for create in creates]
        self._rows("insert_run", rows)
        claimed = self._claimed_from()
        if claimed:
            self._run("check_open", claimed)
        stale = tuple(create.row.id for create in creates if not create.fresh)
        if stale:
            self._run("check_free", stale)
        for count in {create.version_count for create in creates if create.version_count is not None}:
            self._run("check_versions", count)
        fill = self._known["tag_row"].fill
        tags = [fill((key, value, create.row.id)) for create in creates for key, value in create.tags]
        if tags:
            self._texts("insert_tag", tags)
        for create in creates:
            if create.deduplication_key is not None:
                self._run("free_key", create.row.queue, create.deduplication_key)
                self._run("take_key", create.row.queue, create.deduplication_key, create.row.id)

    def _change(self, changes: dict[str, Change]) -> None:
        """Change rows: those that become alike in one statement."""
        alike: dict[Head, list[str]] = {}
        for run_id, one in changes.items():
            head = Head(one.before, one.epoch_before, one.after, one.epoch, one.owner, one.inbox_seen)
            alike.setdefault(head, []).append(run_id)
        for head, run_ids in alike.items():
            for start in range(0, len(run_ids), _CHUNK_CHANGES):
                self._change_alike(head, {one: changes[one] for one in run_ids[start : start + _CHUNK_CHANGES]})

    def _change_alike(self, head: Head, changes: dict[str, Change]) -> None:
        def each(name: str) -> bytes:
            """Return one value if it is the same for all, else one by run."""
            values = {run_id: getattr(change, name) for run_id, change in changes.items()}
            different = set(values.values())
            if len(different) == 1:
                return literal(different.pop())
            cases = [b"when %b then %b" % (literal(run_id), literal(value)) for run_id, value in values.items()]
            return b"case id " + b" ".join(cases) + b" end"

        wake_at, detail, at = each("wake_at"), each("detail"), each("at")
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
