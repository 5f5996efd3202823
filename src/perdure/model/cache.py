"""What a process remembers of its database, in bounded memory, and how often that helped."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable


class CacheStats(msgspec.Struct, frozen=True, kw_only=True):
    """How often one process knew what it would else have asked its database.

    Attributes:
        hits: how often it was known.
        misses: how often the database was asked.
        entries: how many answers are kept now.
        most: how many are ever kept.
    """

    hits: int = 0
    misses: int = 0
    entries: int = 0
    most: int = 0

    @property
    def rate(self) -> float | None:
        """Share of hits, from 0 to 1; None before anything was wanted."""
        wanted = self.hits + self.misses
        return self.hits / wanted if wanted else None


class Cache:
    """Answers by what was asked. The one not used for longest goes first. Used on one thread.

    Args:
        most: so many are kept.
    """

    __slots__ = ("_hits", "_known", "_misses", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._hits = self._misses = 0

    def find(self, question: Hashable) -> Any:
        """Return the answer, None where it is not known. No miss is counted: whoever asks the database says so."""
        found = self._known.get(question)
        if found is not None:
            self._hits += 1
            self._known.move_to_end(question)
        return found

    def learn(self, question: Hashable, answer: Any) -> None:
        """Keep what the database answered, if that is not None."""
        self._misses += 1
        self._known.pop(question, None)
        if answer is not None:
            self._known[question] = answer
            if len(self._known) > self._most:
                self._known.popitem(last=False)

    def forget(self, question: Hashable) -> None:
        """Ask anew the next time."""
        self._known.pop(question, None)

    def stats(self) -> CacheStats:
        """Return how often it helped."""
        return CacheStats(hits=self._hits, misses=self._misses, entries=len(self._known), most=self._most)
