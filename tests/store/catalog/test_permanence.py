"""What the database itself refuses to whoever writes past the program."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import apsw
import psycopg
import pymysql
import pytest

from perdure.store.base import Store
from perdure.testing.conformance.publishing import publish, set_route, set_status

REFUSED = (
    "update {}version_label set label = '9.9.9'",
    "delete from {}version_label",
    "update {}version_change set actor = 'nobody'",
    "delete from {}version_change",
    "update {}route set arms = '[]'",
    "delete from {}route",
    "update {}definition_version set workflow = 'other'",
    "update {}definition_version set sha256 = 'other' where id = 1",
    "update {}definition_version set release_id = 2 where id = 1",
    "update {}definition_version set entry = 'os:system'",
    "update {}definition_version set parts = '{{}}'",
    "delete from {}definition_version",
    (
        "insert into {}definition_version select 9, workflow, sha256, scheme, entry, bootstrap, parts, config, deps,"
        " dependencies, release_id, status, status_n, created_at from {}definition_version where id = 1"
    ),
    "insert into {}version_label values (9, 'order', '1.0.0', '7.0.0', 1, '', 0)",
    "insert into {}version_label values (9, 'order', '7.0.0', '1.0.0', 1, '', 0)",
    "insert into {}version_label values (9, 'order', '7.0.0', '7.0.0', 99, '', 0)",
    "insert into {}definition_alias values ('def1', 'x', 99)",
    "insert into {}route select * from {}route",
    "update {}definition_version set status = 'better'",
    "delete from {}release_tree",
)
TRUNCATED = ("version_label", "version_change", "route", "definition_version")


@pytest.fixture
def execute(kind: str, url: str) -> Callable[[str], None]:
    """Give a function that runs a statement as the owner of the database."""

    def run(sql: str) -> None:
        if kind == "sqlite":
            connection = apsw.Connection(url.removeprefix("sqlite:///"))
            connection.pragma("foreign_keys", 1)
            try:
                connection.execute(sql)
            finally:
                connection.close()
        elif kind == "postgres":
            with psycopg.connect(url, autocommit=True) as one:
                one.execute(sql.encode())
        else:
            parts = urlsplit(url)
            with (
                pymysql.connect(
                    host=parts.hostname, port=parts.port or 3306, user=parts.username,
                    password=parts.password or "", database=parts.path[1:], autocommit=True,
                ) as two,
                two.cursor() as cursor,
            ):  # fmt: skip
                cursor.execute(sql)

    return run


def test_what_is_published_stays(store: Store, kind: str, execute: Callable[[str], None]) -> None:
    catalog = store.catalog
    publish(catalog, "v1", "1.0.0")
    publish(catalog, "v2", "2.0.0")
    set_route(catalog, {"1.0.0": 1})
    before = catalog.definition(1), catalog.shelf("order").routes, catalog.log("order"), catalog.release(1)
    place = "perdure." if kind == "postgres" else ""
    for sql in REFUSED:
        with pytest.raises((apsw.Error, psycopg.Error, pymysql.err.Error)):
            execute(sql.replace("{}", place).replace("{{}}", "{}"))
    if kind == "postgres":
        for table in TRUNCATED:
            with pytest.raises(psycopg.Error, match=r"append-only|keeps its content"):
                execute(f"truncate {place}{table} cascade")
    assert (catalog.definition(1), catalog.shelf("order").routes, catalog.log("order"), catalog.release(1)) == before
    assert set_status(catalog, 1, "withdrawn")
