"""A batch sorted by kind, on its way to a few statements.

Writes of different runs commute, so they are grouped by kind; writes of one run keep their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from perdure.model.write import Append, Create, Purge, Send, Upgrade
from perdure.store.settle import Doubt
from perdure.store.upgrade import rebinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.model.event import Event
    from perdure.model.run import Message
    from perdure.model.write import Change, Write
    from perdure.store.tails import Tails

PURGED = ("purge_event", "purge_inbox", "purge_tag", "purge_key", "purge_slot", "purge_run")
"""What a purge runs with the id of the run, in order."""


class Gathering(ABC):
    """Writes sorted by kind. A backend makes statements of them.

    Attributes:
        ends: the last seq of each log once it is done.
        misses: appends whose place had to be looked up.
    """

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        self._appends = 0
        self._born: list[Create] = []
        self.ends: dict[str, int] = {}
        self.misses: int = 0
        self._clear()

    def _clear(self) -> None:
        self._touched: set[str] = set()
        self._events: list[Event] = []
        self._creates: list[Create] = []
        self._changes: list[tuple[str, Change]] = []
        self._consumed: list[tuple[str, int]] = []
        self._told: list[Message] = []
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
                self._born.append(write)
                self._events += write.events
                self.ends[write.row.id] = len(write.events)
            elif isinstance(write, Send):
                self._apart(write.message.run_id)
                self._send(write)
            elif isinstance(write, Purge):
                self._apart(write.run_id)
                self.ends.pop(write.run_id, None)
                self._purge(write)
            else:
                raise Doubt  # it comes alone
        self._end()

    def add_closely(self, batch: Sequence[Write]) -> None:
        """Add writes that were looked at: an `Upgrade` too, which comes alone. See `add`."""
        upgrade = batch[0]
        if not isinstance(upgrade, Upgrade):
            self.add(batch)
            return
        self.add([upgrade.append])
        for name, *values in rebinding(upgrade):
            self._run(name, *values)

    def done(self) -> None:
        """Remember the ends of the logs, once the batch is committed."""
        for create in self._born:
            self._tails.born(create)
        self._tails.update(self.ends)
        self._tails.count(self._appends, self.misses)

    def _append(self, write: Append) -> None:
        run_id, new, change, taken = write.run_id, write.events, write.change, write.consumed
        self._appends += 1
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
            if change.tell is not None:
                self._told.append(change.tell)
        if taken:
            self._consumed.extend((run_id, n) for n in taken)

    def _apart(self, run_id: str) -> None:
        """Keep what follows apart from what came before it for the same run."""
        if run_id in self._touched:
            self._end()

    def _end(self) -> None:
        if self._creates and any(create.row.partition_key is not None for create in self._creates):
            self._creates.sort(key=lambda create: create.row.partition_key or "")  # all join lanes in one order
        self._flush()
        for message in sorted(self._told):  # in one order against deadlocks
            self._tell(message)
        self._clear()

    def _rounds(self) -> Iterator[dict[str, Change]]:
        """Return the changes so that no run is twice in one statement, each round in one order against deadlocks."""
        changes = self._changes
        while changes:
            now: dict[str, Change] = {}
            later: list[tuple[str, Change]] = []
            for run_id, change in changes:
                if run_id in now:
                    later.append((run_id, change))
                else:
                    now[run_id] = change
            yield {run_id: now[run_id] for run_id in sorted(now)}
            changes = later

    def _claimed_from(self) -> tuple[str, ...]:
        """Return the queues of the runs that are claimed as they are created."""
        return tuple({create.row.queue for create in self._creates if create.row.owner is not None})

    @abstractmethod
    def _flush(self) -> None:
        """Make statements of what was gathered."""

    @abstractmethod
    def _run(self, name: str, *values: str | int | None) -> None: ...

    @abstractmethod
    def _send(self, write: Send) -> None: ...

    @abstractmethod
    def _tell(self, message: Message) -> None:
        """Send a message if its run has not ended; nothing depends on it."""

    @abstractmethod
    def _purge(self, write: Purge) -> None: ...
