"""Damage to what is stored of versions is found, and named as what it is."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from perdure.testing.conformance.publishing import (
    AT,
    clear_route,
    publish,
    set_route,
    set_status,
    sha,
)
from perdure.verify.database import verify
from tests.servers.fixtures import Database


def fill(url: str) -> None:
    """Store versions in every state, routes, and a run that is bound."""
    store: Store = open_store(url, StoreOptions())
    store.open()
    catalog = store.catalog
    (first,) = publish(catalog, "v1", "1.0.0")
    for number in range(2, 5):
        publish(catalog, f"v{number}", f"{number}.0.0")
    publish(catalog, "v2", "2.0.1")
    publish(catalog, "v1", "1.0.0", "refund")
    publish(catalog, "only", "1.0.0", "alone")
    set_route(catalog, {"2.0.0": 5, "3.0.0": 95})
    clear_route(catalog)
    set_route(catalog, {"4.0.0": 1}, channel="beta")
    set_status(catalog, 2, "withdrawn")
    set_status(catalog, 2, "active")
    set_status(catalog, 3, "withdrawn")
    set_status(catalog, 6, "closed", workflow="alone")
    gone = catalog.collect(keep=0, closed_before=AT + 1, unused_before=2**62, at=AT, actor="dan", reason="old")
    assert [version.id for version in gone.versions] == [6]
    catalog.note("order", 1, "load_failed", {}, at=AT, actor="w1", reason="")
    author = Author("bound", store.now())
    store.commit([author.create(version_id=first.version_id)])
    moved = Author("moved", store.now())
    store.commit([moved.create(version_id=1), moved.upgraded(1, 2), moved.upgraded(2, 3)])
    store.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("versions") / "sound.db"
    fill(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path


def damaged(sound: Path, path: Path, script: str) -> set[str]:
    """Change a copy by raw SQL and return the rules that are found broken then."""
    shutil.copy(sound, path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma ignore_check_constraints = on")
    for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
        connection.execute(f"drop trigger {name}")
    connection.executescript(script)
    connection.close()
    return {finding.rule for finding in verify(f"sqlite:///{path}").findings}


def test_a_sound_file_has_no_findings(sound: Path) -> None:
    assert [one for one in verify(f"sqlite:///{sound}").findings if one.rule != "tags"] == []


def packed(data: bytes) -> str:
    return f"x'{zlib.compress(data).hex()}'"


OF_V1 = f"where sha256 = '{sha('v1')}'"
# What is done, and the rules that must be named: no more, no fewer.
DAMAGE: dict[str, tuple[str, set[str]]] = {
    "code is replaced": (f"update definition_blob set data = {packed(b'v7')} {OF_V1};", {"blob"}),
    "code is replaced by more": (f"update definition_blob set data = {packed(b'v1' * 9)} {OF_V1};", {"blob"}),
    "code is cut off": (f"update definition_blob set data = substr(data, 1, 5) {OF_V1};", {"blob"}),
    "code is no code": (f"update definition_blob set data = x'00' {OF_V1};", {"blob"}),
    "something is behind it": (f"update definition_blob set data = cast(data || x'00' as blob) {OF_V1};", {"blob"}),
    "its length is another": (f"update definition_blob set raw_size = 1 {OF_V1};", {"blob"}),
    "its length is none": (f"update definition_blob set raw_size = -1 {OF_V1};", {"blob"}),
    "its codec is another": (f"update definition_blob set codec = 'lzma' {OF_V1};", {"blob"}),
    "code is lost": (f"delete from definition_blob {OF_V1};", {"release"}),
    "code has another name": (f"update definition_blob set sha256 = '{sha('x')}' {OF_V1};", {"blob", "release"}),
    "a manifest is another": ("update release_tree set manifest = '{}' where id = 2;", {"release"}),
    "a manifest is none": ("update release_tree set manifest = '[' where id = 2;", {"release"}),
    "a manifest is of another kind": ("update release_tree set manifest = '[1]' where id = 2;", {"release"}),
    "a release is lost": ("delete from release_tree where id = 2;", {"version"}),
    "a version is lost": ("delete from definition_version where id = 4;", {"record", "label", "alias", "route"}),
    "a version is revived": ("update definition_version set status = 'active' where id = 6;", {"version", "release"}),
    "a version is withdrawn by hand": ("update definition_version set status = 'withdrawn' where id = 1;", {"version"}),
    "a change of status is another": ("update definition_version set status_n = 1 where id = 3;", {"version"}),
    "a label is lost": ("delete from version_label where label = '2.0.1';", {"record"}),
    "the only label is lost": ("delete from version_label where label = '4.0.0';", {"record", "version"}),
    "a label is moved": ("update version_label set version_id = 2 where label = '4.0.0';", {"record", "version"}),
    "a label of nobody": (
        "insert into version_label values (99, 'order', '9', '9', 99, '', 0);", {"label"},
    ),
    "a label of another workflow": ("update version_label set workflow = 'x' where label = '2.0.1';", {"label"}),
    "a row of the record is lost": ("delete from version_change where action = 'load_failed';", set()),
    "a row in the middle is lost": ("delete from version_change where action = 'restored';", {"record", "version"}),
    "a publication is forgotten": ("update version_change set action = 'labelled' where n = 1;", {"record"}),
    "a row of the record is about nobody": ("update version_change set version_id = 99 where n = 1;", {"record"}),
    "a hash is forgotten": ("delete from definition_alias where version_id = 2;", {"alias"}),
    "a hash of nobody": ("insert into definition_alias values ('def1', 'x', 99);", {"alias"}),
    "a route leads nowhere": (
        "update route set arms = '[[99,\"9\",1]]' where channel = 'beta';", {"route"},
    ),
    "a route leads to another workflow": (
        "update route set arms = '[[5,\"1.0.0\",1]]' where channel = 'beta';", {"route"},
    ),
    "a route cannot be read": ("update route set arms = '[1' where channel = 'beta';", {"route"}),
    "a revision is lost": ("delete from route where channel = 'default' and revision = 1;", {"route"}),
    "an upgrade is lost": ("delete from run_upgrade where new_epoch = 1;", {"upgrade"}),
    "all upgrades are lost": ("delete from run_upgrade;", {"upgrade"}),
    "an upgrade led elsewhere": ("update run_upgrade set to_version = 4 where new_epoch = 1;", {"upgrade"}),
    "an upgrade nobody made": (
        "insert into run_upgrade values ('bound', 1, 1, 2, null, 0, '', '', 0);", {"upgrade", "binding"},
    ),
    "a run is bound back": ("update run set version_id = 2 where id = 'moved';", {"binding"}),
    "a run is bound to nothing": ("update run set version_id = 99;", {"binding"}),
    "a run is bound to another workflow": ("update run set version_id = 5;", {"binding"}),
    "a run is bound to what was purged": ("update run set version_id = 6, workflow = 'alone';", {"binding"}),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_named(name: str, sound: Path, tmp_path: Path) -> None:
    script, rules = DAMAGE[name]
    assert damaged(sound, tmp_path / "copy.db", script) - {"tags"} == rules


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_servers_are_read_too(kind: str, new_database: Callable[[str], Database]) -> None:
    database = new_database(kind)
    fill(database.url)
    assert [one for one in verify(database.url).findings if one.rule != "tags"] == []
    place = "perdure." if kind == "postgres" else ""
    database.execute(f"update {place}definition_blob set raw_size = 1 {OF_V1}")
    database.execute(f"delete from {place}definition_alias where version_id = 2")
    assert {one.rule for one in verify(database.url).findings} - {"tags"} == {"blob", "alias"}
