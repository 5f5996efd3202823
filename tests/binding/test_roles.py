"""Each role has what it needs for its work, and cannot do that of another. The statements are those of the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

import perdure
from perdure import Engine, Status, UsageError
from tests.binding.shops import Shop, client
from tests.keys import KeyFiles, make_keys
from tests.servers.fixtures import Database
from tests.servers.mariadb import Mariadb

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sign-versions.md"
ROLES = ("publish", "work", "start", "operate")
SERVERS = {"postgres": "### PostgreSQL", "mariadb": "### MariaDB and MySQL"}


def statements(heading: str) -> list[str]:
    """Return the statements that the page gives under a heading."""
    block = re.search(r"```sql\n(.*?)```", PAGE.read_text().partition(heading)[2], re.DOTALL)
    assert block is not None
    return [statement.strip() for statement in block[1].split(";") if statement.strip()]


class Roles:
    """A database with the documented roles."""

    def __init__(self, kind: str, database: Database) -> None:
        self.kind = kind
        self.database = database
        for statement in statements(SERVERS[kind]):
            text = statement
            for role in ROLES:
                text = re.sub(rf"\bperdure_{role}\b", self._name(role), text)
            if kind == "mariadb":
                text = re.sub(r"\bperdure\.", f"{database.name}.", text)
                assert isinstance(database.server, Mariadb)
                database.server.execute(text)
            else:
                database.execute(text)

    def _name(self, role: str) -> str:
        return f"{role}_{self.database.name}"

    def url(self, role: str) -> str:
        return re.sub(r"//perdure(:[^@]*)?@", f"//{self._name(role)}:secret@", self.database.url, count=1)

    def may(self, role: str, statement: str) -> bool:
        """Whether a role may do something. Nothing is done."""
        return self._on_mariadb(role, statement) if self.kind == "mariadb" else self._on_postgres(role, statement)

    def _on_mariadb(self, role: str, statement: str) -> bool:
        connection = pymysql.connect(
            host="127.0.0.1", port=self.database.server.port, user=self._name(role), password="secret",
            database=self.database.name,
        )  # fmt: skip
        with connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.err.OperationalError as error:
                if error.args[0] not in (1142, 1143):  # denied: a table, a column
                    raise
                return False
            return True

    def _on_postgres(self, role: str, statement: str) -> bool:
        with psycopg.connect(self.url(role)) as connection:
            connection.execute("set search_path = perdure")
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                return False
            finally:
                connection.rollback()
            return True


@pytest.fixture(params=SERVERS)
def roles(request: pytest.FixtureRequest, new_database: Callable[[str], Database]) -> Roles:
    database = new_database(request.param)
    with perdure.SyncEngine(database.url, worker=False):
        pass
    return Roles(request.param, database)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return make_keys(tmp_path)


async def published(roles: Roles, keys: KeyFiles, *modules: Any, **options: Any) -> None:
    async with client(roles.url("publish"), migrate=False, **options) as engine:
        await engine.versions.publish(modules, sign=keys.private, reason="deploy")


def worker(roles: Roles, keys: KeyFiles, *modules: Any, role: str = "work") -> Engine:
    return Engine(
        roles.url(role), modules, migrate=False, registration="published-only", trusted_keys=[keys.public],
        require_signed=True, poll=0.05, foreign_delay=0.1,
    )  # fmt: skip


async def test_each_role_does_its_work(roles: Roles, keys: KeyFiles, shop: Shop) -> None:
    first = shop.deploy("v1", "1.0.0")
    await published(roles, keys, first)
    async with client(roles.url("start"), migrate=False) as engine:
        old = await engine.start("order", 5, id="o-1", tags={"customer": "7"}, queue="default")
        assert (await engine.start("order", 5, id="o-1")).id == old.id
        await engine.start("order", 6, id="o-2", deduplication_key="d", priority=3, delay=3600)
        assert (await engine.start("order", 6, id="o-5", deduplication_key="d")).id == "o-2"
        await engine.start("order", 7, id="o-4", partition_key="k", delay=3600)
        assert [info.id async for info in engine.list()] == ["o-4", "o-2", "o-1"]
    second = shop.deploy("v2", "2.0.0")
    await published(roles, keys, second, new_versions="hold")
    async with client(roles.url("operate"), migrate=False) as engine:
        await engine.routes.set("order", {"2.0.0": 1}, reason="go")
        await engine.versions.withdraw("order", "1.0.0", reason="old")
        plan = await engine.upgrades.plan(ids=["o-2"], to="2.0.0")
        assert [str(one.outcome) for one in await engine.upgrades.apply(plan.id, reason="go")] == ["applied"]
        for run_id in ("o-2", "o-4"):
            await engine.get(run_id).cancel(reason="not wanted")
    async with worker(roles, keys, second) as engine, asyncio.timeout(30):
        new = await engine.start("order", 1, id="o-3")
        assert [await engine.get("o-1").result(), await new.result()] == ["v1", "v2"]
    async with client(roles.url("operate"), migrate=False) as engine:
        assert (await engine.get("o-2").info()).status == Status.CANCELLED
        await engine.routes.clear("order", reason="go")
        await engine.versions.close("order", "1.0.0", reason="drained")
        for run_id in ("o-1", "o-2", "o-4"):
            await engine.purge(run_id)
        collected = await engine.versions.collect(keep=0, closed_for=0)
        assert len(collected.versions) == 1


CODE = (
    "definition_blob", "release_tree", "definition_version", "version_label", "definition_alias", "version_signature",
)  # fmt: skip
"""What decides what is run: only who publishes adds to it."""


@pytest.mark.parametrize("table", CODE)
def test_only_who_publishes_adds_code(roles: Roles, table: str) -> None:
    adding = f"insert into {table} select * from {table} where 1 = 0"
    assert [role for role in ROLES if roles.may(role, adding)] == ["publish"]
    removing = [role for role in ROLES if roles.may(role, f"delete from {table} where 1 = 0")]
    assert removing == (["operate"] if table == "definition_blob" else [])


@pytest.mark.parametrize(
    "statement,able",
    [
        ("update definition_version set entry = entry where 1 = 0", []),
        ("update definition_version set bootstrap = bootstrap where 1 = 0", []),
        ("update definition_version set status = status where 1 = 0", ["operate"]),
        ("update release_tree set manifest = manifest where 1 = 0", []),
        ("update definition_alias set version_id = version_id where 1 = 0", []),
        ("update version_signature set key_id = key_id where 1 = 0", []),
        ("update version_label set version_id = version_id where 1 = 0", []),
        ("insert into version_change select * from version_change where 1 = 0", ["publish", "operate"]),
        ("insert into route select * from route where 1 = 0", ["publish", "operate"]),
        ("insert into run_upgrade select * from run_upgrade where 1 = 0", ["operate"]),
        ("insert into upgrade_plan select * from upgrade_plan where 1 = 0", ["operate"]),
        ("update meta set version_count = version_count where 1 = 0", ["publish", "operate"]),
        ("update run set status = status where 1 = 0", ["work", "operate"]),
        ("update run set version_id = version_id where 1 = 0", ["work", "operate"]),
        ("delete from run where 1 = 0", ["work", "operate"]),
        ("insert into event select * from event where 1 = 0", ["work", "start", "operate"]),
        ("update event set name = name where 1 = 0", []),
        ("delete from event where 1 = 0", ["work", "operate"]),
        ("insert into worker select * from worker where 1 = 0", ["work", "operate"]),
        ("delete from schema_migration where 1 = 0", []),
        ("insert into schema_migration select * from schema_migration where 1 = 0", []),
        ("drop table version_signature", []),
    ],
)
def test_who_may_do_what(roles: Roles, statement: str, able: list[str]) -> None:
    assert [role for role in ROLES if roles.may(role, statement)] == able


async def test_a_worker_cannot_publish_whatever_it_is_told(roles: Roles, keys: KeyFiles, shop: Shop) -> None:
    module = shop.deploy("v1", "1.0.0")
    with pytest.raises(perdure.NotPublished):
        await worker(roles, keys, module).open()
    with pytest.raises(UsageError, match="lacks a right"):
        await Engine(roles.url("work"), [module], migrate=False).open()  # registration="worker"
    async with client(roles.url("publish"), module, migrate=False) as engine:
        await engine.versions.publish()
    with pytest.raises(perdure.SignatureInvalid, match="it has no signature"):
        await worker(roles, keys, module).open()
    for role in ("work", "start", "operate"):
        async with client(roles.url(role), module, migrate=False) as engine:
            with pytest.raises(UsageError, match="lacks a right"):
                await engine.versions.sign("order", "1.0.0", key=keys.private)
            with pytest.raises(UsageError, match="lacks a right"):
                await engine.versions.publish([shop.deploy("v2", "2.0.0")])
