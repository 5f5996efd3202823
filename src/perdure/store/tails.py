"""What a process knows of the ends of logs without asking the database, in bounded memory, and how often it helps."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.model.cache import CacheStats

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.model.write import Create

MOST_TAILS = 100_000
MOST_UNCLAIMED = 4_096
LARGEST_UNCLAIMED = 4_096
"""Bytes of input of a run whose log is kept until it is claimed."""


class Tails(dict[str, int]):
    """Run id to a seq that is known to be in its log: what the next append is checked against without asking.

    Logs only grow, so what is here stays true, whoever else writes. It must be cleared when a transaction whose writes
    it took in does not commit.

    Attributes:
        numbers: under which number a run's events are stored, where the store has numbers. A number may be given
            again once its run is purged.
        last_number: no run has a higher one.
        version_count: count of changes of versions, labels and routes.
        unclaimed: whole logs, of one event, of runs that were recorded here and that nobody owned then: a claim that
            finds such a run in its first epoch need not read it.
        hits: appends that needed no look.
        misses: appends that did.
    """

    __slots__ = ("hits", "last_number", "misses", "numbers", "unclaimed", "version_count")

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.last_number: int | None = None
        self.version_count: int | None = None
        self.unclaimed: OrderedDict[str, tuple[Event, ...]] = OrderedDict()
        self.hits: int = 0
        self.misses: int = 0

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.unclaimed.clear()
        self.others_wrote()

    def others_wrote(self) -> None:
        """Forget what holds only while nobody else writes: numbers and counts."""
        self.numbers.clear()
        self.last_number = self.version_count = None

    def born(self, create: Create) -> None:
        """Take in a new run."""
        row, events = create.row, create.events
        self[row.id] = len(events)
        if row.owner is None and len(events) == 1 and len(events[0].input or b"") <= LARGEST_UNCLAIMED:
            unclaimed = self.unclaimed
            unclaimed[row.id] = events
            if len(unclaimed) > MOST_UNCLAIMED:
                with suppress(KeyError):  # another thread may just have cleared it
                    unclaimed.popitem(last=False)

    def count(self, appends: int, misses: int) -> None:
        """Note how many appends there were, and how many of them needed a look; keep within bounds."""
        self.hits += appends - misses
        self.misses += misses
        if len(self) > MOST_TAILS:
            self.clear()

    def stats(self) -> CacheStats:
        """Return how often it helped."""
        return CacheStats(hits=self.hits, misses=self.misses, entries=len(self), most=MOST_TAILS)
