"""What a database has to offer for a catalog: named statements, one by one or in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

Value = str | bytes | int | tuple[str, ...] | None
"""What a statement takes; a tuple is a list of texts."""
Rows = list[tuple[Any, ...]]
R = TypeVar("R")


class Run(Protocol):
    """Runs statements of ``catalog.sql``, each a name and its values, in order and in as few round trips as it can."""

    def __call__(self, *calls: tuple[Any, ...]) -> list[Rows]:
        """Return the rows of each."""
        ...


class Ground(Protocol):
    """One database."""

    def read(self, work: Callable[[Run], R]) -> R:
        """Do what only reads. Each statement sees what is committed when it begins. It may be done more than once."""
        ...

    def write(self, work: Callable[[Run], R]) -> R:
        """Do what writes, in one transaction at READ COMMITTED or better, durable on return; after a deadlock again.

        Raises:
            Exception: what ``work`` raised; then nothing was written.
            StoreUnavailable: in the end nothing was written, or there is no telling (``unknown``).
        """
        ...
