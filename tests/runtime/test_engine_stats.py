"""`Engine.stats`: how often a running engine need not ask its database."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import CacheStats, Engine, EngineStats, SyncEngine, UsageError
from perdure.runtime import connection
from tests.servers.fixtures import Database

RUNS = 20


@perdure.step
async def doubled(number: int) -> int:
    return 2 * number


@perdure.workflow
async def double(number: int) -> int:
    return await doubled(number)


@perdure.workflow
async def other(number: int) -> int:
    return number


@pytest.fixture(params=["mariadb", "memory", "postgres", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("memory", "sqlite"):
        return "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path / 'a.db'}"
    database: Database = request.getfixturevalue("new_store")(request.param)
    return database.url


def shelves_asked(engine: Engine) -> float:
    """Return how often the store was asked what versions a workflow has."""
    counters: dict[str, float] = engine.connection.store.counters()  # type: ignore[attr-defined]
    return counters.get("shelf_calls", 0)


async def test_the_ends_of_own_logs_are_known_and_versions_are_asked_for_once(url: str) -> None:
    engine = Engine(url, [double])
    with pytest.raises(UsageError, match="not open"):
        engine.stats()
    async with engine:
        assert [engine.stats().log_ends.rate, engine.stats().definitions.rate] == [None, None]
        before = shelves_asked(engine)
        assert [await engine.run(double, number) for number in range(RUNS)] == [2 * number for number in range(RUNS)]
        found = engine.stats()
        assert found.definitions == CacheStats(hits=RUNS - 1, misses=1, entries=1, most=connection.MOST_DEFINITIONS)
        assert shelves_asked(engine) - before == 1
        kept = engine.connection.store.capabilities.shared  # what is in memory is kept once
        assert (found.log_ends.misses, found.log_ends.rate) == (0, 1.0 if kept else None)
        assert found.log_ends.hits == (2 * RUNS if kept else 0)


async def test_after_a_change_of_versions_they_are_asked_for_once_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with Engine(url, [double]) as engine:
        await engine.run(double, 1)
        async with Engine(url, [other]):
            pass  # its version is new
        for number in range(RUNS):
            await engine.run(double, number)
        found = engine.stats().definitions
        assert (found.misses, found.hits) == (2, RUNS)  # the first of them was refused and bound anew


async def test_definitions_are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_DEFINITIONS", 1)
    async with Engine(f"sqlite:///{tmp_path / 'a.db'}", [double, other]) as engine:
        for number in range(3):
            await engine.run(double, number)
            await engine.run(other, number)
        await engine.run(other, 3)
        assert engine.stats().definitions == CacheStats(hits=1, misses=6, entries=1, most=1)


def test_the_sync_engine_tells_the_same(tmp_path: Path) -> None:
    with SyncEngine(f"sqlite:///{tmp_path / 'a.db'}", [double]) as engine:
        engine.run(double, 1)
        assert engine.stats() == engine.engine.stats() != EngineStats(log_ends=CacheStats(), definitions=CacheStats())
