"""A store whose commits are flights: sent, watched by `select`, landed where they fail."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, cast

from perdure.model.write import Outcome, Write
from perdure.store.base import Flight, Sender, Store, StoreOptions, open_store


class Sending:
    """Wrap a store that sends.

    Attributes:
        flights: how many there were.
        failed: how many of them ended with an error.
    """

    def __init__(self, inner: Store) -> None:
        assert inner.capabilities.sends
        self.inner = cast("Sender", inner)
        self.flights = 0
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        flight = self.inner.send(batch) if block and batch else None
        if flight is None:
            return self.inner.commit(batch, block=block)
        self.flights += 1
        arrive(flight)
        if flight.error is None:
            return flight.outcomes
        self.failed += 1
        return self.inner.land(batch, flight)


@contextmanager
def sending(url: str, deadline_s: float) -> Iterator[Any]:
    """Give an open store whose commits are flights, each with so many seconds."""
    store = Sending(open_store(url, StoreOptions(busy_timeout_s=deadline_s)))
    store.open()
    yield store
    store.close()


def arrive(flight: Flight) -> None:
    """See a flight to its end."""
    while not flight.is_over:
        file = flight.fileno()
        wanted = [file] if flight.unsent else []
        reading, writing, _ = select.select([file], wanted, [], max(flight.deadline - monotonic(), 0))
        if reading or writing:
            flight.advance()
        else:
            flight.expire()
