"""`perdure.store.settle.Book` of a server, inside a transaction that holds the rows of the runs it looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from perdure.model.event import Event
from perdure.model.run import Message, RunRow, Tombstone
from perdure.model.write import SetQueue
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost
from perdure.store.settle import Standing
from perdure.store.slots import changed, settings_of
from perdure.store.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.model.queue import QueueRow
    from perdure.model.write import Write


class ServerBook(Generic[L]):
    """See the module."""

    def __init__(self, dialect: Dialect[L], link: L, *, hurry: bool = False) -> None:
        self._dialect = dialect
        self._link = link
        self._hurry = hurry
        """Whether to wait for nobody: somebody was in the way of the batch for too long."""

    def standings(self, run_ids: Sequence[str]) -> Iterable[tuple[str, Standing]]:
        """Return the runs that there are, and lock their rows."""
        rows = self._link.execute("standings_free" if self._hurry else "standings", tuple(run_ids)).rows
        return [(str(row[0]), Standing(str(row[1]), int(row[2]), int(row[3] or 0))) for row in rows]

    def held(self, run_ids: Sequence[str]) -> Iterable[str]:
        """Return the runs that there are although `standings` has not returned them."""
        return [str(row[0]) for row in self._link.execute("there", tuple(run_ids)).rows] if self._hurry else []

    def row(self, run_id: str) -> RunRow | None:
        """Return a run."""
        return run_row(self._link, run_id)

    def tombstone(self, run_id: str) -> Tombstone | None:
        """Return what a purged run left."""
        return tombstone(self._link, run_id)

    def last(self, run_id: str) -> Event | None:
        """Return the end of a log."""
        rows = self._link.execute("load_tail", run_id, 1).rows
        return Event._make(rows[0]) if rows else None

    def commit_id(self, run_id: str, seq: int) -> int | None:
        """Return who wrote a place of a log."""
        rows = self._link.execute("commit_at", run_id, seq).rows
        return rows[0][0] if rows else None

    def inbox(self, run_id: str) -> Sequence[Message]:
        """Return the messages that wait."""
        return inbox(self._link, run_id)

    def queue(self, name: str) -> QueueRow | None:
        """Return the settings of a queue."""
        return settings_of(self._fetch, name)

    def key_holder(self, queue: str, key: str) -> RunRow | None:
        """Return the open run that has a deduplication key."""
        found = self._fetch("key_holder", queue, key)
        return run_row(self._link, found[0][0]) if found else None

    def version_count(self) -> int:
        """Return the count of changes of versions, labels and routes."""
        return int(self._fetch("version_count")[0][0])

    def has_changed(self, queue: str, commit_id: int) -> bool:
        """Whether a change of a queue is recorded."""
        return bool(self._fetch("change_by", queue, commit_id))

    def _fetch(self, name: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._link.execute(name, *values).rows

    def attempt(self, writes: Sequence[Write]) -> None:
        """Apply writes, all of them or none."""
        if isinstance(writes[0], SetQueue):
            self._link.execute("make_queue", writes[0].queue)  # so that there is a row to lock
            for call in changed(self._fetch, self.queue(writes[0].queue), writes[0]):
                if call[0] in self._dialect.sql:
                    self._link.execute(*call)
            return
        self._dialect.attempt(self._link, writes, Tails(), hurry=self._hurry)

    def is_blocked(self, error: Exception, writes: Sequence[Write]) -> bool:
        """Whether an error says that somebody else is in the way of one of these writes, of which nothing is left."""
        return self._hurry and self._dialect.fault(error) is Fault.BLOCKED and not isinstance(writes[0], SetQueue)

    def is_environment(self, error: Exception) -> bool:
        """Whether an error says nothing about the write at hand."""
        return isinstance(error, LinkLost) or self._dialect.fault(error) is not Fault.WRITE

    def translate(self, error: Exception) -> Exception | None:
        """Return what an error of the driver means."""
        return self._dialect.translate(error)


def run_row(link: L, run_id: str) -> RunRow | None:
    """Return a run."""
    rows = link.execute("get_run", run_id).rows
    return RunRow._make(rows[0]) if rows else None


def tombstone(link: L, run_id: str) -> Tombstone | None:
    """Return what a purged run left."""
    rows = link.execute("get_request", run_id).rows
    return Tombstone._make(rows[0]) if rows else None


def inbox(link: L, run_id: str) -> list[Message]:
    """Return the messages that wait."""
    return [Message._make(row) for row in link.execute("inbox", run_id).rows]
