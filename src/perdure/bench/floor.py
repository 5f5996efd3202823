"""What this machine can do: the floor that every ratio stands on.

A bare connection to a file of its own, beside the database that is measured: WAL, ``synchronous=FULL``.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import apsw

ROW = b"r" * 200
BULK_ROWS = 1_000


@dataclass
class Floor:
    """Samples of the machine's limits, taken before, between and after the rounds of a figure.

    Attributes:
        path: the file.
        seconds: length of one sample.
        rates: single-row commits per second, a value per sample.
        commit_s: seconds of one single-row commit, a median per sample.
        bulk: rows per second in transactions of 1,000 rows, a value per sample.
    """

    path: Path
    seconds: float
    rates: list[float] = field(default_factory=list)
    commit_s: list[float] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Take one sample of single-row commits."""
        with closing(apsw.Connection(str(self.path))) as connection:
            _prepare(connection)
            insert = connection.cursor()
            times: list[float] = []
            began = now = perf_counter()
            while now - began < self.seconds:
                insert.execute("insert into floor (body) values (?)", (ROW,))  # a transaction of its own
                before, now = now, perf_counter()
                times.append(now - before)
        self.rates.append(len(times) / (now - began))
        self.commit_s.append(median(times))

    def sample_bulk(self) -> None:
        """Take one sample of rows in large transactions."""
        rows = [(ROW,)] * BULK_ROWS
        with closing(apsw.Connection(str(self.path))) as connection:
            _prepare(connection)
            insert = connection.cursor()
            count, began = 0, perf_counter()
            while perf_counter() - began < self.seconds:
                insert.execute("begin immediate")
                insert.executemany("insert into floor (body) values (?)", rows)
                insert.execute("commit")
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


def _prepare(connection: apsw.Connection) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table if not exists floor (id integer primary key, body blob not null) strict")
