"""A worker that is started over and over, as one in a crash loop is: nothing of it is left with its versions."""

from __future__ import annotations

import logging

import apsw
import pytest

from perdure import Engine
from tests.binding.shops import Shop


def rows(url: str) -> dict[str, int]:
    """Return how many rows each table of a database has, but for that of workers."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"), apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
    found = {name: next(connection.execute(f'select count(*) from "{name}"'))[0] for name in names}
    connection.close()
    del found["worker"]  # one for each start; those that left are removed after a time
    return found


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("starts", [50, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])])
async def test_starting_a_worker_over_and_over_makes_no_second_version_and_no_log_flood(
    url: str, shop: Shop, starts: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    module = shop.deploy("v1", "1.0.0")
    async with Engine(url, [module]):
        pass
    first, told = rows(url), len(caplog.records)
    for _ in range(starts - 1):
        async with Engine(url, [module]):
            pass
    async with Engine(url, worker=False) as engine:
        assert [one.label for one in await engine.versions.list()] == ["1.0.0"]
        assert [one.action for one in await engine.versions.log("order")] == ["published"]
    assert rows(url) == first
    assert len(caplog.records) == told
