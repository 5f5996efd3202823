"""`perdure.store.settle.Book` of a file, inside a transaction that holds the write lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.model.event import Event
from perdure.model.queue import QueueRow
from perdure.model.run import Message, RunRow, Tombstone
from perdure.model.write import COMMITTED, SetQueue, Upgrade
from perdure.store.settle import Doubt, Standing
from perdure.store.sqlite.batch import apply, fetch, plain, run_row, tombstone
from perdure.store.sqlite.fault import ENVIRONMENT, translate
from perdure.store.sqlite.queues import run, set_queue
from perdure.store.tails import Tails
from perdure.store.upgrade import rebinding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import apsw

    from perdure.model.write import Write


class SqliteBook:
    """See the module."""

    def __init__(self, connection: apsw.Connection, now: int, tails: Tails) -> None:
        self._connection = connection
        self._now = now
        self._tails = tails

    def standings(self, run_ids: Sequence[str]) -> Iterable[tuple[str, Standing]]:
        """Return the runs that there are."""
        rows = fetch(self._connection, "tails", msgspec.json.encode(run_ids).decode())
        return [(run_id, Standing(status, epoch, tail or 0)) for run_id, status, epoch, tail in rows]

    def row(self, run_id: str) -> RunRow | None:
        """Return a run."""
        return run_row(self._connection, run_id)

    def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what a purged run left."""
        return tombstone(self._connection, run_id)

    def last(self, run_id: str) -> Event | None:
        """Return the end of a log."""
        found = fetch(self._connection, "load_tail", run_id, 1)
        return Event._make(found[0]) if found else None

    def commit_id(self, run_id: str, seq: int) -> int | None:
        """Return who wrote a place of a log."""
        found = fetch(self._connection, "commit_at", run_id, seq)
        return found[0][0] if found else None

    def inbox(self, run_id: str) -> Sequence[Message]:
        """Return the messages that wait."""
        return [Message._make(row) for row in fetch(self._connection, "inbox", run_id)]

    def queue(self, name: str) -> QueueRow | None:
        """Return the settings of a queue."""
        found = fetch(self._connection, "get_queue", name)
        return QueueRow._make(found[0]) if found else None

    def key_holder(self, queue: str, key: str) -> RunRow | None:
        """Return the open run that has a deduplication key."""
        found = fetch(self._connection, "key_holder", queue, key)
        return run_row(self._connection, found[0][0]) if found else None

    def version_count(self) -> int:
        """Return the count of changes of versions, labels and routes."""
        return int(fetch(self._connection, "version_count")[0][0])

    def has_changed(self, queue: str, commit_id: int) -> bool:
        """Whether a change of a queue is recorded."""
        return bool(fetch(self._connection, "change_by", queue, commit_id))

    def attempt(self, writes: Sequence[Write]) -> None:
        """Apply writes, all of them or none."""
        connection = self._connection
        connection.execute("savepoint part")
        try:
            if isinstance(writes[0], SetQueue):
                set_queue(connection, writes[0])
            elif isinstance(writes[0], Upgrade):
                plain(connection, [writes[0].append], self._now, self._tails)
                run(connection, rebinding(writes[0]))
            elif any(outcome is not COMMITTED for outcome in apply(connection, writes, self._now, self._tails)):
                raise Doubt  # noqa: TRY301 - handled like what the database finds
        except ENVIRONMENT:
            raise
        except Exception:
            self._tails.clear()
            connection.execute("rollback to part")
            connection.execute("release part")
            raise
        connection.execute("release part")

    def held(self, run_ids: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """Return nothing: there is one writer."""
        return ()

    def is_blocked(self, error: Exception, writes: Sequence[Write]) -> bool:  # noqa: ARG002
        """Return False: there is one writer."""
        return False

    def is_environment(self, error: Exception) -> bool:
        """Whether an error says nothing about the write at hand."""
        return isinstance(error, ENVIRONMENT)

    def translate(self, error: Exception) -> Exception | None:
        """Return what an error of the driver means."""
        return translate(error)
