"""Transactional steps under kill -9, most of them just before and just after a commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.verify.database import verify
from tests.guard.clients import Place
from tests.guard.conftest import NewPlace
from tests.guard.storm.fleet import Fate, Fleet, check_books, open_shop
from tests.guard.storm.test_storm import DIALECTS
from tests.guard.storm.worker import PARTS
from tests.process import Spawner
from tests.servers.fixtures import Database
from tests.servers.postgres import USER

OWN = {"postgres": "postgresql", "mariadb": "mysql"}
RECORDED = "select run_id, count(*) from event where type = 'step_completed' group by 1"
GUARDS = (
    "select count(*) from information_schema.tables "
    "where table_name = 'perdure_guard' and table_schema in (?, 'public', 'perdure')"
)
DYING: list[Fate] = [{5: "dies"}, {4: "dies"}, {3: "dies"}]
"""Two die for certain: there are always two workers, and more to do than both of them live for."""
FREEZING: list[Fate] = [{2: "freezes", 6: "dies"}, {3: "freezes", 5: "dies"}]
MUCH: dict[str, Any] = {"kills": 30, "dies": 0.03, "freezes": 10, "freezing": 0.01, "longest_s": 8.0}


async def apart(spawn: Spawner, url: str, place: Place, runs: int, **harm: Any) -> int:
    """Sell from a database that is not the engine's; give how many workers died."""
    open_shop(place._asdict())
    fleet = Fleet(spawn, url, place._asdict(), **harm)
    results = await fleet.sell(runs)
    print(f"{place.dialect}: {PARTS * runs} transactional steps, {fleet.kills} kills")
    check_books(place._asdict(), results)
    return fleet.kills


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_was_sold_is_what_is_recorded(
    spawn: Spawner, new_place: NewPlace, tmp_db: str, dialect: str
) -> None:
    assert await apart(spawn, tmp_db, new_place(dialect), runs=10, fates=DYING) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_was_sold_is_what_is_recorded_after_many_kills(
    spawn: Spawner, new_place: NewPlace, tmp_db: str, dialect: str
) -> None:
    assert await apart(spawn, tmp_db, new_place(dialect), runs=400, kills=40, dies=0.03) >= 50


async def inside(spawn: Spawner, database: Database, kind: str, runs: int, **harm: Any) -> Fleet:
    """Sell from the engine's own database, where a sale and its record are one transaction."""
    place = Place(OWN[kind], port=database.server.port, user=USER, database=database.name)._asdict()
    open_shop(place)
    fleet = Fleet(spawn, database.url, place, **harm)
    results = await fleet.sell(runs)
    print(
        f"{kind}: {PARTS * runs} steps in the engine's own database, {fleet.kills} kills, "
        f"{fleet.freezes} freezes past the lease, {fleet.aimed} of them at a commit"
    )
    check_books(place, results)
    assert database.rows(RECORDED + " having count(*) <> ?", PARTS) == []
    assert len(database.rows(RECORDED)) == runs
    assert database.rows(GUARDS, database.name) == [(0,)]
    assert [str(finding) for finding in verify(database.url).findings] == []
    return fleet


@pytest.mark.parametrize("kind", OWN)
async def test_what_was_sold_is_what_is_recorded_in_the_engines_own_database(
    spawn: Spawner, new_database: Callable[[str], Database], kind: str
) -> None:
    fleet = await inside(spawn, new_database(kind), kind, 8, fates=FREEZING)
    assert fleet.kills >= 1
    assert fleet.freezes >= 1


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", OWN)
async def test_what_was_sold_is_what_is_recorded_in_the_engines_own_database_after_many_kills(
    spawn: Spawner, new_database: Callable[[str], Database], kind: str
) -> None:
    """Some are frozen for so long that the server puts them out, others wake while their transaction is still open."""
    fleet = await inside(spawn, new_database(kind), kind, 400, **MUCH)
    assert fleet.kills >= 50
    assert fleet.freezes >= 10
    assert fleet.aimed >= 5
