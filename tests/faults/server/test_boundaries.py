"""Faults at calls of a store on a server: a fresh engine brings the run to the same end, as on every store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.faults import Fault
from perdure.verify.database import verify
from perdure.verify.examination import Report
from tests.faults import programs
from tests.faults.lives import CRASHES, RUN_ID, Mortal, Shelf, canonical, first_life, second_life
from tests.faults.test_boundaries import FEWEST, PROGRAMS, check, check_effects, fault_free
from tests.servers.fixtures import Database
from tests.servers.postgres import Postgres

QUICK = {
    "postgres": (Fault.ERROR_AFTER, Fault.CRASH_AFTER),
    "postgres18": (Fault.CRASH_AFTER,),
    "mariadb": (Fault.ERROR_AFTER,),
}
"""What belongs to the default suite, on each server; the nightly campaigns have all faults on all of them."""
KINDS_AND_FAULTS = [
    pytest.param(kind, fault, marks=() if fault in quick else pytest.mark.nightly)
    for kind, quick in QUICK.items()
    for fault in Fault
]
TABLES = ("tag", "inbox", "event", "request", "worker", "run")
BURY = "insert into request select id, workflow, 0, 'completed', 0, null, null from run"
"""A log may be deleted once its run is purged."""
TWICE = frozenset({"commit", "claim"})
"""What is done under a fault in more than one place: at the beginning, and at the end."""


class ServerShelf(Shelf):
    """A database on a server, whose leases can be made to end."""

    def __init__(self, database: Database) -> None:
        super().__init__("server", Path())
        self.database = database

    def store(self) -> Store:
        return open_store(self.database.url, StoreOptions(durability="process"))

    def time_passes(self) -> None:
        if isinstance(self.database.server, Postgres):
            self.database.execute("update perdure.worker set expires_at = 1 where state = 'live'")
        else:
            self.database.execute("update worker set expires_at = 1 where state = 'live'")
        store = self.store()
        store.open()
        store.sweep()
        store.close()

    def examine(self) -> Report:
        return verify(self.database.url, [RUN_ID])

    def clear(self) -> None:
        """Forget every run, as if the database were new."""
        with self.database.server.connect(self.database.name) as connection, connection.cursor() as cursor:
            if isinstance(self.database.server, Postgres):
                cursor.execute("set session_replication_role = replica")
                cursor.execute(f"truncate {', '.join(f'perdure.{table}' for table in TABLES)}")
            else:
                cursor.execute("start transaction")
                cursor.execute(BURY)
                for table in TABLES:
                    cursor.execute(f"delete from {table}")
                cursor.execute("commit")


@pytest.fixture
def shelf(new_database: Callable[[str], Database], kind: str) -> ServerShelf:
    return ServerShelf(new_database(kind))


def some_of(trace: list[str], fault: Fault) -> Iterator[int]:
    """Give one boundary of each kind, another one for each fault; of those that write, two."""
    places = defaultdict[str, list[int]](list)
    for number, name in enumerate(trace, start=1):
        places[name].append(number)
    turn = list(Fault).index(fault)
    for name, numbers in places.items():
        chosen = {numbers[turn % len(numbers)]}
        if name in TWICE:
            chosen.add(numbers[-1 - turn % len(numbers)])
        yield from chosen


async def inject(shelf: ServerShelf, program: str, fault: Fault, numbers: Iterator[int]) -> int:
    """Inject a fault at each of some boundaries, until one is not reached any more. Give how many were injected."""
    store = await fault_free(shelf, program)
    expected = canonical(shelf)
    assert store.boundaries >= FEWEST[program]
    injected = 0
    for number in numbers:
        programs.EFFECTS.clear()
        shelf.clear()
        store = Mortal(shelf.store(), at=number, fault=fault)
        await first_life(store, program)
        if not store.injected:
            if number > store.boundaries + 5:
                break
            continue  # it was not reached this time
        injected += 1
        where = f"{fault} at {number} ({store.trace[number - 1]})"
        shelf.time_passes()
        await second_life(shelf, program)
        check(shelf, where)
        assert canonical(shelf) == expected, where
        check_effects(where, crashes=fault in CRASHES)
    return injected


@pytest.mark.parametrize("kind, fault", KINDS_AND_FAULTS)
async def test_every_kind_of_boundary(
    shelf: ServerShelf, kind: str, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    store = await fault_free(shelf, "plain")
    numbers = sorted(some_of(store.trace, fault))
    if kind != "postgres":  # beside it, each fault has its half
        numbers = numbers[list(Fault).index(fault) % 2 :: 2]
    shelf.clear()
    injected = await inject(shelf, "plain", fault, iter(numbers))
    with capsys.disabled():
        print(f"\nplain on {kind}: {injected} boundaries x {fault}", end="")
    assert injected >= len(numbers) - 2
    assert injected >= 2


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", list(Fault))
async def test_every_boundary(
    shelf: ServerShelf, kind: str, program: str, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    injected = await inject(shelf, program, fault, count(1))
    with capsys.disabled():
        print(f"\n{program} on {kind}: {injected} boundaries x {fault}", end="")
    assert injected >= FEWEST[program]
