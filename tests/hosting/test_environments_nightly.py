"""Environments from a package index: for another Python than the worker's, and with the drivers of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.runtime.hosts.building import HERE, Builder, is_usable, recipe
from perdure.runtime.hosts.environments import Environments
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import Spawner
from tests.hosting.releases import answer, flow, make_database, make_job, told

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
MINORS = ("3.11", "3.12", "3.13", "3.14")


async def test_the_recorded_python(tmp_path: Path, tmp_db: str) -> None:
    builder = Builder(tmp_path / "environments")
    there = [minor for minor in MINORS if minor != HERE and await builder.interpreter(minor)]
    if not there:
        pytest.skip("there is no second Python here")
    files = flow("import sys\nreturn [*sys.version_info[:2], iniconfig.__name__]", "import iniconfig\n")
    job = make_job(
        tmp_path, files, await make_database(tmp_db), python=there[0], distributions={"iniconfig": "2.0.0"}
    )  # fmt: skip
    host = await Environments(Spawner(), builder)(job)
    try:
        ready = await told(host)
        assert not ready.notices
        major, minor, name = await answer(tmp_db)
    finally:
        host.kill()
        await host.ended()
        host.close()
    assert (f"{major}.{minor}", name) == (there[0], "iniconfig")


@pytest.mark.parametrize("scheme", ["sqlite", "postgresql", "mysql"])
async def test_the_engine_and_its_driver_can_be_imported(tmp_path: Path, scheme: str) -> None:
    builder = Builder(tmp_path / "environments")
    job = Job("71", "", {}, [], [], "", f"{scheme}://host/db", {}, distributions={"iniconfig": "2.0.0"})
    environment = await builder.build(recipe(job, await builder.interpreter("")))  # proved before it is given
    assert is_usable(environment)
