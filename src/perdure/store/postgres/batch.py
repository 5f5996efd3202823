"""The hot path of a commit: a batch as a few statements in one round trip.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order. Whatever is unusual
(a taken place, a state that moved, an id that exists) is an error of the server, which ends the transaction before the
COMMIT that is already on its way; `perdure.store.settle` then does the batch again with its eyes open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.store.postgres.array import BLOBS, NUMBERS, TEXTS, blobs, numbers, texts
from perdure.store.postgres.link import Call, Statement, call
from perdure.store.server.flight import SentBatch
from perdure.store.server.gathering import PURGED, Gathering
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.run import Message
    from perdure.model.write import Change, Purge, Send, Write
    from perdure.store.postgres.link import PostgresLink
    from perdure.store.slots import Call as Named

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
    link.run(writing.whole(link, batch), committing=True)
    writing.done()


def send(link: PostgresLink, known: Statements, batch: Sequence[Write], tails: Tails) -> SentBatch:
    """Have on its way what `apply` commits."""
    writing = Batch(known, tails)
    return SentBatch(link, writing, link.start(writing.whole(link, batch), committing=True))


def attempt(link: PostgresLink, known: Statements, writes: Sequence[Write], ends: Tails, *, hurry: bool) -> None:
    """Apply writes inside the open transaction, all of them or none."""
    writing = Batch(known, ends)
    writing.add_closely(writes)
    try:
        hurrying = [Call(known["hurry"])] if hurry else []
        link.run([Call(known["savepoint"]), *hurrying, *writing.calls, Call(known["release"])])
    except Exception:
        if link.usable:
            link.run([Call(known["undo"]), Call(known["release"])])
        raise


def conclude(
    link: PostgresLink, known: Statements, writes: Sequence[Write], ends: Tails, calls: Sequence[Named]
) -> None:
    """Apply writes, run statements and commit, in the open transaction."""
    writing = Batch(known, ends)
    writing.add(writes)
    more = [call(known[name], values) for name, *values in calls]
    link.run([*writing.calls, *more, Call(known["commit"])], committing=True)


class Batch(Gathering):
    """Writes as calls.

    Attributes:
        calls: what to run, in order.
    """

    def __init__(self, known: Statements, tails: Tails) -> None:
        super().__init__(tails)
        self._known = known
        self.calls: list[Call] = []

    def whole(self, link: PostgresLink, batch: Sequence[Write]) -> list[Call]:
        """Return a batch as a transaction of its own; see `add`."""
        self.add(batch)
        return [*link.opening, *self.calls, Call(self._known["commit"])]

    def _run(self, name: str, *values: str | int | None) -> None:
        self.calls.append(call(self._known[name], values))

    def _send(self, write: Send) -> None:
        run_id, _, kind, sent_at, detail = write.message
        self.calls.append(call(self._known["send"], (run_id, kind, sent_at, detail)))

    def _tell(self, message: Message) -> None:
        run_id, _, kind, sent_at, detail = message
        self.calls.append(call(self._known["tell"], (run_id, kind, sent_at, detail)))

    def _purge(self, write: Purge) -> None:
        run_id, at, actor, reason = write
        self.calls.append(call(self._known["insert_request"], (run_id, at, actor, reason)))
        self.calls.extend(call(self._known[name], (run_id,)) for name in PURGED)

    def _flush(self) -> None:
        if self._creates:
            self._create()
        if self._events:
            self._call("insert_event", self._events)
        if self._unsure:
            self._call("check_places", self._unsure)
        for changes in self._rounds():
            self._call("change_run", [_columns(*change) for change in changes.items()])
        if self._consumed:
            self._call("take_message", self._consumed)

    def _create(self) -> None:
        creates = self._creates
        self._call("insert_run", [create.row for create in creates], self._claimed_from())
        stale = [(create.row.id,) for create in creates if not create.fresh]
        if stale:
            self._call("check_free", stale)
        counts = {create.version_count for create in creates if create.version_count is not None}
        if counts:
            self._call("check_versions", [(count,) for count in counts])
        tags = [(key, value, create.row.id) for create in creates for key, value in create.tags]
        if tags:
            self._call("insert_tag", tags)
        keys = [(one.row.queue, one.deduplication_key, one.row.id) for one in creates if one.deduplication_key]
        if keys:
            self._call("take_key", keys)

    def _call(self, name: str, rows: Sequence[Sequence[object]], *more: Sequence[object]) -> None:
        """Add a statement that takes a column of each value of ``rows``, and what else is given."""
        columns = (*zip(*rows, strict=True), *more)
        values = [encode(column) for (_, encode), column in zip(_COLUMNS[name], columns, strict=True)]
        self.calls.append(Call(self._known[name], values))


def _columns(run_id: str, change: Change) -> tuple[str | int | None, ...]:
    return (
        run_id, change.before, change.epoch_before, change.after, change.epoch, change.owner, change.wake_at,
        change.inbox_seen, change.detail, change.at,
    )  # fmt: skip
