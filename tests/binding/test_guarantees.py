"""What holds whoever interferes: nobody rebinds a run, routes explain runs, and binding costs no statement a step."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import psycopg
import pymysql
import pytest

import perdure
from perdure.verify.database import verify
from tests.binding.shops import Shop, client, publish
from tests.process import Spawner

pytestmark = pytest.mark.timeout(360)
START = """
import asyncio, os, sys, perdure

async def main():
    url, prefix, count, gate = sys.argv[1:]
    async with perdure.Engine(url, worker=False) as engine:
        print("ready", flush=True)
        while not os.path.exists(gate):
            await asyncio.sleep(0.001)
        for n in range(int(count)):
            await engine.start("order", id=f"{prefix}-{n}")
    print("done", flush=True)

asyncio.run(main())
"""
STARTERS, EACH, CHANGES = 4, 60, 25
CATALOG = (
    "definition_blob", "definition_version", "definition_alias", "release_tree", "version_label", "version_change",
    "route",
)  # fmt: skip


@pytest.fixture
def execute(kind: str, url: str) -> Callable[[str], None]:
    """Give a function that runs a statement as the owner of the database."""

    def run(sql: str) -> None:
        if kind == "sqlite":
            with contextlib.closing(apsw.Connection(url.removeprefix("sqlite:///"))) as one:
                one.execute(sql.format(""))
        elif kind == "postgres":
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(sql.format("perdure.").encode())
        else:
            parts = urlsplit(url)
            third = pymysql.connect(
                host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or "",
                database=parts.path.removeprefix("/"), autocommit=True,
            )  # fmt: skip
            with contextlib.closing(third), third.cursor() as cursor:
                cursor.execute(sql.format(""))

    return run


async def test_a_statement_over_all_runs_rebinds_none(url: str, shop: Shop, execute: Callable[[str], None]) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    async with client(url) as engine:
        await engine.start_many(perdure.Start("order", id=f"r{n}") for n in range(10))
    await publish(url, shop.deploy("v2", "2.0.0"))
    for sql in (
        "update {}run set version_id = 2",
        "update {}run set version_id = 2, epoch = epoch + 1",
        "update {}run set version_id = 0",
        "update {}run set version_id = 2 where id = 'r3'",
    ):
        with pytest.raises((apsw.Error, psycopg.Error, pymysql.Error), match="binding changes only through an upgrade"):
            execute(sql)
    async with client(url) as engine:
        assert {info.version_id async for info in engine.list()} == {1}
        assert {(await engine.versions.of(f"r{n}")).label for n in range(10)} == {"1.0.0"}


async def test_in_a_storm_of_changes_each_run_is_explained_by_the_revision_it_names(
    url: str, shop: Shop, spawn: Spawner, tmp_path: Path
) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    await publish(url, shop.deploy("v2", "2.0.0"))
    gate = tmp_path / "gate"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    children = [spawn.python(START, url, f"p{n}", str(EACH), str(gate), env=environment) for n in range(STARTERS)]
    async with client(url) as engine:
        for child in children:
            child.expect("ready")
        gate.touch()
        for turn in range(CHANGES):
            part = turn * 100 // CHANGES
            await engine.routes.set("order", {"2.0.0": part + 1, "1.0.0": 100 - part}, reason=f"turn {turn}")
            if turn % 10 == 9:
                await engine.routes.clear("order", reason=f"cleared in turn {turn}")
        for child in children:
            assert child.finish().code == 0
        log = await engine.versions.log("order", limit=1000)
        arms = {one.detail["revision"]: one.detail["arms"] for one in log if one.action == "route_set"}
        bound = [await engine.versions.of(info.id) async for info in engine.list()]
    assert len(bound) == STARTERS * EACH
    for one in bound:
        if one.bound_by == "newest":
            assert one.label == "2.0.0"
            continue
        assert (one.bound_by, one.channel) == ("route", "default")
        assert one.revision is not None
        assert one.arm is not None
        assert arms[one.revision][one.arm][1] == one.label
    assert Counter(one.label for one in bound).keys() == {"1.0.0", "2.0.0"}
    assert verify(url).sound


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of what is executed on SQLite connections that are opened from now on."""
    seen: list[str] = []

    def traced(_cursor: object, sql: str, _values: object) -> bool:
        seen.append(sql)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = traced

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, hook])
    return seen


@pytest.mark.sqlite_only
async def test_a_bound_run_costs_no_row_and_no_statement_more_than_an_unbound_one(
    tmp_path: Path, shop: Shop, statements: list[str]
) -> None:
    module = shop.deploy("v1", "1.0.0", "    for n in range(20):\n        await ship(n)")
    plain = perdure.workflow(name="plain", unversioned=True)(module.order.definition.function)
    costs = []
    for name, workflow in (("order", module.order), ("plain", plain)):
        async with perdure.Engine(f"sqlite:///{tmp_path / name}.db", [workflow], max_hosts=0, poll="9s") as engine:
            await engine.run(workflow, id="first")
            statements.clear()
            await engine.run(workflow, id="second")
            seen = list(statements)
        assert any("insert into event" in sql for sql in seen)
        assert not [sql for sql in seen if any(table in sql for table in CATALOG)]
        asked = sum("version_count" in sql for sql in seen)
        with contextlib.closing(apsw.Connection(str(tmp_path / f"{name}.db"))) as one:
            tables = [row[0] for row in one.execute("select name from sqlite_schema where type = 'table'")]
            rows = {table: next(iter(one.execute(f"select count(*) from {table}")))[0] for table in tables}
        costs.append((asked, {table: count for table, count in rows.items() if table not in CATALOG}))
    (asked, bound), (_, unbound) = costs
    assert asked <= 1  # the start; no step asks
    assert bound == unbound
