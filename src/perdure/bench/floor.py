"""What this machine can do: the floor that every ratio stands on. Taken through a bare connection, see `bench.site`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.bench.site import Bare

ROW = b"r" * 200
BULK_ROWS = 1_000


@dataclass
class Floor:
    """Samples of the machine's limits, taken before, between and after the rounds of a figure.

    Attributes:
        connect: makes a bare connection.
        seconds: length of one sample.
        rates: single-row commits per second, a value per sample.
        commit_s: seconds of one single-row commit, a median per sample.
        bulk: rows per second in transactions of 1,000 rows, a value per sample.
    """

    connect: Callable[[], Bare]
    seconds: float
    rates: list[float] = field(default_factory=list)
    commit_s: list[float] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Take one sample of single-row commits."""
        with closing(self.connect()) as bare:
            times: list[float] = []
            began = now = perf_counter()
            while now - began < self.seconds:
                bare.insert(ROW)
                before, now = now, perf_counter()
                times.append(now - before)
        self.rates.append(len(times) / (now - began))
        self.commit_s.append(median(times))

    def sample_bulk(self) -> None:
        """Take one sample of rows in large transactions."""
        rows = [ROW] * BULK_ROWS
        with closing(self.connect()) as bare:
            count, began = 0, perf_counter()
            while perf_counter() - began < self.seconds:
                bare.insert_all(rows)
                count += BULK_ROWS
            self.bulk.append(count / (perf_counter() - began))

    @property
    def commits_per_s(self) -> float:
        """Single-row commits per second."""
        return median(self.rates)

    @property
    def commit_us(self) -> float:
        """Microseconds of one single-row commit."""
        return median(self.commit_s) * 1e6
