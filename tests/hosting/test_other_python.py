"""A version that was recorded on another Python runs on that one, where it is here. Asks a package index."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.runtime.hosts.building import HERE, Builder
from perdure.runtime.hosts.environments import Environments
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
