"""Whatever happens at whichever call of a store on a server, a fresh engine brings the run to the same end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.testing.faults import Fault
from tests.faults import programs
from tests.faults.lives import CRASHES, Mortal, canonical, first_life, second_life
from tests.faults.server_shelf import ServerShelf
from tests.faults.test_boundaries import FEWEST, PROGRAMS, check, check_effects, fault_free
from tests.servers.fixtures import Database

pytestmark = [pytest.mark.timeout(300), pytest.mark.serial]
KINDS = ("mariadb", "postgres")


async def every_boundary(
    database: Database, kind: str, program: str, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = ServerShelf(kind, database)
    store = await fault_free(shelf, program)
    expected = canonical(shelf)
    assert store.boundaries >= FEWEST[program]
    number = 0
    while True:
        number += 1
        shelf.empty()
        programs.EFFECTS.clear()
        store = Mortal(shelf.store(), at=number, fault=fault)
        await first_life(store, program)
        if not store.injected:
            break
        where = f"{fault} at {number} ({store.trace[number - 1]})"
        shelf.time_passes()
        await second_life(shelf, program)
        check(shelf, where)
        assert canonical(shelf) == expected, where
        check_effects(where, crashed=fault in CRASHES)
    with capsys.disabled():
        print(f"\n{program} on {kind}: {number - 1} boundaries x {fault}", end="")
    assert number > FEWEST[program]


@pytest.mark.parametrize("kind", KINDS)
async def test_boundaries_where_what_was_done_is_reported_as_failed(
    new_database: Callable[[str], Database], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await every_boundary(new_database(kind), kind, "straight", Fault.ERROR_AFTER, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*KINDS, "postgres18"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", list(Fault))
async def test_every_boundary(
    new_database: Callable[[str], Database], kind: str, program: str, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    await every_boundary(new_database(kind), kind, program, fault, capsys)
