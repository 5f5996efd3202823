"""The queues of a file: the settings as one process knows them, and the statements of `perdure.store.slots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.model.queue import QueueRow
from perdure.model.write import Create, SetQueue
from perdure.store import slots
from perdure.store.settle import Doubt
from perdure.store.sqlite.batch import SQL, fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import apsw

    from perdure.model.write import Write
    from perdure.store.slots import Call, Fetch


class QueueBook(NamedTuple):
    """The settings of all queues as of one moment. Replaced as a whole, so that any thread may read it."""

    version: int
    rows: dict[str, QueueRow]
    counted: frozenset[str]
    """Queues whose runs are not claimed as they are created."""

    def check(self, batch: Sequence[Write]) -> None:
        """Have a batch looked at closely that is to claim a run whose queue counts its claims.

        Raises:
            Doubt: it is.
        """
        counted = self.counted
        if counted and any(type(one) is Create and one.row.owner and one.row.queue in counted for one in batch):
            raise Doubt

    def after(self, batch: Sequence[Write]) -> QueueBook:
        """Return what is known once ``batch`` is applied."""
        return UNREAD if any(isinstance(write, SetQueue) for write in batch) else self


UNREAD = QueueBook(-1, {}, frozenset())


def read_book(connection: apsw.Connection, version: int, known: QueueBook = UNREAD) -> QueueBook:
    """Return the settings, which have the given version; ``known`` if that is them."""
    if version == known.version:
        return known
    rows = {row[0]: QueueRow._make(row) for row in fetch(connection, "queues")}
    return QueueBook(version, rows, frozenset(name for name, row in rows.items() if row.is_counted))


def reading(connection: apsw.Connection) -> Fetch:
    """Return how statements of queues are read here: a list of texts is a JSON array."""

    def read(name: str, *values: Any) -> list[tuple[Any, ...]]:
        given = (msgspec.json.encode(one).decode() if type(one) is tuple else one for one in values)
        return fetch(connection, name, *given)

    return read


def run(connection: apsw.Connection, calls: Iterable[Call]) -> None:
    """Run statements."""
    for name, *values in calls:
        if name in SQL:
            connection.execute(SQL[name], values)


def set_queue(connection: apsw.Connection, write: SetQueue) -> None:
    """Change settings."""
    read = reading(connection)
    run(connection, slots.changed(read, slots.settings_of(read, write.queue), write))
