"""Measuring on database servers: the same figures are taken, and nothing is left there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.bench.session import bench
from perdure.bench.site import open_site
from perdure.errors import UsageError
from tests.perf.test_bench import HELD, SMALL
from tests.servers.fixtures import Database, Servers

FIGURES = ["steps", "sequence", "latency", "starts", "workers"]
HELD_HERE = HELD | {"two workers, to one"}
"""A second worker is there for speed only where the database is a server."""
LEFT = {
    "mariadb": "show databases like 'perdure\\_bench%%'",
    "postgres": "select nspname from pg_namespace where nspname like 'perdure\\_bench%%'",
}


@pytest.mark.parametrize("kind", LEFT)
def test_figures_are_taken_and_nothing_is_left(
    new_database: Callable[[str], Database], tmp_path: Path, kind: str
) -> None:
    database = new_database(kind)
    told: list[str] = []
    taken = list(bench(tmp_path, SMALL, FIGURES, told.append, database.url))
    assert told == [group for group, _ in taken] == ["machine", *FIGURES]
    figures = [figure for _, found in taken for figure in found]
    assert all(figure.value >= 0 for figure in figures)
    assert {figure.name for figure in figures if figure.floor is not None} < HELD_HERE
    stored = {figure.name: figure.value for figure in figures if figure.name.endswith("per step")}
    assert stored["rows per step"] > 1
    assert stored["bytes per step"] > 100
    assert not list(tmp_path.iterdir())
    assert database.execute(LEFT[kind], ()) == []


def test_a_user_who_may_not_make_databases_is_told_what_to_grant(servers: Servers, tmp_path: Path) -> None:
    server = servers.mariadb()
    name = server.new_database()
    server.execute("create user small@'127.0.0.1'")
    server.execute(f"grant all on {name}.* to small@'127.0.0.1'")
    with pytest.raises(UsageError, match="cannot make a database") as caught:
        open_site(server.url(name).replace("perdure@", "small@"), tmp_path).bare()
    assert caught.value.hint is not None
    assert "grant all on" in caught.value.hint
