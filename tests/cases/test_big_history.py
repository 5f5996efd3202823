"""A real complaint about a history that has become big: what goes on now waits for what ended long ago."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

import perdure
from perdure import Queue
from tests.cases.backends import everywhere
from tests.cases.conftest import World

number = count()


@perdure.step
async def piece(n: int) -> int:
    return n


@perdure.workflow
async def five() -> list[int]:
    return [await piece(n) for n in range(5)]


@perdure.workflow
async def asleep() -> int:
    await perdure.sleep(0.05)
    return 1


class History:
    """The tables of a world, into which one finished run is copied over and over."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kind = "sqlite" if world.database is None else world.database.kind

    def columns(self, table: str, *without: str) -> list[str]:
        """Give the columns of a table as they are written in a statement."""
        if self.kind == "sqlite":
            found = [name for _, name, *_ in self.world.rows(f"pragma table_info({table})")]
        else:
            query = "select column_name from information_schema.columns where is_generated = 'NEVER'"
            query += " and table_name = ? and table_schema = "
            mine = "'perdure'" if self.kind == "postgres" else "database()"
            found = [name for (name,) in self.world.rows(query + mine, table)]
        quote = "`{}`" if self.kind == "mariadb" else '"{}"'
        return [quote.format(name) for name in found if name not in without]

    def copy(self, runs: int) -> None:
        """Add so many runs like ``seed``, with all of their events."""
        numbers = {
            "sqlite": f"(with recursive c(n) as (select 1 union all select n + 1 from c limit {runs}) select n from c)",
            "postgres": f"(select n from generate_series(1, {runs}) as n)",
            "mariadb": f"(select seq as n from seq_1_to_{runs})",
        }[self.kind]
        new = "concat('old-', c.n)" if self.kind == "mariadb" else "'old-' || c.n"
        names = self.columns("run", "no", "id")
        into, rest = ", ".join(["id", *names]), ", ".join(f"s.{name}" for name in names)
        self.world.write(
            f"insert into run ({into}) select {new}, {rest} from {numbers} as c, run as s where s.id = 'seed'"
        )
        table, key, of = ("event_log", "run_no", "no") if self.kind == "sqlite" else ("event", "run_id", "id")
        names = self.columns(table, key)
        into, rest = ", ".join([key, *names]), ", ".join(f"e.{name}" for name in names)
        seed = f"(select {of} from run where id = 'seed')"
        self.world.write(
            f"insert into {table} ({into}) select r.{of}, {rest} from run as r, {table} as e"
            f" where r.id like 'old-%' and e.{key} = {seed}"
        )
        if self.kind != "mariadb":
            self.world.write("analyze")


async def passage(engine: perdure.Engine) -> float:
    """Give the seconds that a run takes which is claimed twice: as it is new, and when its timer is due."""
    began = time.monotonic()
    run = await engine.start(asleep, queue="q", id=f"new-{next(number)}")
    assert await run.result(timeout=60) == 1
    return time.monotonic() - began


def most(spans: Sequence[float]) -> float:
    """Give what nineteen in twenty are below; the median, where so few are that chance would decide."""
    return sorted(spans)[len(spans) * 19 // 20 - 1] if len(spans) >= 100 else statistics.median(spans)


@everywhere
@pytest.mark.parametrize(
    "runs,times", [(2_000, 10), pytest.param(1_000_000, 200, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
async def test_case_ops_02(
    world: World, request: pytest.FixtureRequest, tmp_path: Any, runs: int, times: int, capsys: Any
) -> None:
    """A big history stops what starts work: looking for due rows among millions that have ended takes for ever.

    Very many runs of five steps have ended. Runs start and their timers fall due about as soon as in an empty store,
    which is measured in turn. (That the statements use an index is held in `tests/store`. No schedules as yet.)
    Source: PrefectHQ/prefect#15045, PrefectHQ/prefect#15919.
    """
    history = History(world)
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    if world.database is not None:
        empty = request.getfixturevalue("new_store")(history.kind).url
    options: dict[str, Any] = {"queues": ["default", Queue("q", concurrency=50)], "lease": "30s", "poll": "0.2s"}
    async with perdure.Engine(world.url, [five], **options) as engine:
        await engine.run(five, id="seed")
    history.copy(runs)
    options |= {"evict_after": "1ms", "hint": "20ms"}
    spans: dict[str, list[float]] = {"empty": [], "full": []}
    async with (
        perdure.Engine(empty, [asleep], **options) as beside,
        perdure.Engine(world.url, [asleep], **options) as full,
    ):
        for _ in range(times):
            spans["empty"].append(await passage(beside))
            spans["full"].append(await passage(full))
        assert len([info async for info in full.list(status="completed", limit=200)]) == 200
    told = {name: f"{most(found) * 1e3:.0f} ms" for name, found in spans.items()}
    with capsys.disabled():
        print(f"\n{times} starts with timers beside {runs} ended runs, most of them within: {told}")
    assert most(spans["full"]) < 2 * most(spans["empty"]) + 0.05
