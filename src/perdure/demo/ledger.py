"""The outside ledger: what really happened, written by the services and read for the proof.

Nothing here knows Perdure. The table of effects has no unique key on purpose: a second charge would be there to see.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SERVICES = ("reserve", "charge", "ship", "notify")
ADDED = ("screen",)
"""What only the later release asks for."""
SCHEMA = """
create table effect (service text not null, key text not null, order_id text not null, cents integer not null,
    release text not null);
create index effect_key on effect (service, key);
create table call (service text not null, key text not null, outcome text not null);
"""


class Demand(NamedTuple):
    """What must have happened for one order."""

    order_id: str
    cents: int


class Ledger:
    """The writing end, for the one process that is the services."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.executescript(SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def calls(self, service: str, key: str) -> int:
        """Return how often a key was presented so far."""
        question = "select count(*) from call where service = ? and key = ?"
        return int(self._connection.execute(question, (service, key)).fetchone()[0])

    def done(self, service: str) -> int:
        """Return how many effects a service has had."""
        return int(self._connection.execute("select count(*) from effect where service = ?", (service,)).fetchone()[0])

    def refuse(self, service: str, key: str) -> None:
        """Note a call that was turned away with nothing done."""
        self._connection.execute("insert into call values (?, ?, 'refused')", (service, key))

    def perform(self, service: str, key: str, order_id: str, cents: int, outcome: str, release: str) -> None:
        """Have the effect, unless this key has had it before. One transaction. The release is that of the caller."""
        connection = self._connection
        with connection:
            connection.execute("begin immediate")
            seen = connection.execute("select 1 from effect where service = ? and key = ?", (service, key)).fetchone()
            connection.execute("insert into call values (?, ?, ?)", (service, key, "repeated" if seen else outcome))
            if not seen:
                connection.execute(
                    "insert into effect values (?, ?, ?, ?, ?)", (service, key, order_id, cents, release)
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the ledger proves.

    Attributes:
        orders: orders that were paid.
        once: per service, orders with exactly one effect, under one key, of the right amount.
        twice: orders with more than one effect in some service.
        lost: orders that some service has never seen.
        strangers: effects of no such order, or of another amount.
        calls: requests the services got.
        keys: different keys among them.
        refused: requests turned away with nothing done.
        replies_lost: requests that were done and never answered.
        repeated: requests whose key had had its effect before: the key kept them from doing it again.
        releases: order to the releases of the shop that had effects for it.
    """

    orders: int
    once: dict[str, int]
    twice: int
    lost: int
    strangers: int
    calls: int
    keys: int
    refused: int
    replies_lost: int
    repeated: int
    releases: dict[str, tuple[str, ...]]

    @property
    def reattempts(self) -> int:
        """Requests beyond the first of each key."""
        return self.calls - self.keys

    @property
    def balanced(self) -> bool:
        """Whether every order had each effect exactly once, and nothing else happened."""
        whole = all(count == self.orders for count in self.once.values())
        return whole and not (self.twice or self.lost or self.strangers)


def audit(path: Path, demands: Iterable[Demand]) -> Audit:
    """Read a ledger that nobody writes any more and compare it with what was paid for."""
    with closing(sqlite3.connect(path)) as connection:
        effects = connection.execute("select service, key, order_id, cents, release from effect").fetchall()
        outcomes = Counter(outcome for (outcome,) in connection.execute("select outcome from call"))
        keys = connection.execute("select count(*) from (select distinct service, key from call)").fetchone()[0]
    wanted = {demand.order_id: demand.cents for demand in demands}
    found: dict[tuple[str, str], int] = defaultdict(int)
    strangers = 0
    releases: dict[str, set[str]] = defaultdict(set)
    for service, _, order_id, cents, release in effects:
        releases[order_id].add(release)
        if wanted.get(order_id) == cents and service in (*SERVICES, *ADDED):
            found[service, order_id] += 1
        else:
            strangers += 1
    counts = {order: [found[service, order] for service in SERVICES] for order in wanted}
    return Audit(
        orders=len(wanted),
        once={service: sum(found[service, order] == 1 for order in wanted) for service in SERVICES},
        twice=sum(max(each) > 1 for each in counts.values()),
        lost=sum(min(each) == 0 for each in counts.values()),
        strangers=strangers, calls=outcomes.total(), keys=keys, refused=outcomes["refused"],
        replies_lost=outcomes["reply lost"], repeated=outcomes["repeated"],
        releases={order: tuple(sorted(found)) for order, found in releases.items()},
    )  # fmt: skip
