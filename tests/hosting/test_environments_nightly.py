"""With a package index: environments for another Python than the worker's and with drivers of servers; and numpy."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from perdure.runtime.hosts.building import HERE, Builder, is_usable, recipe
from perdure.runtime.hosts.environments import Environments
from perdure.runtime.hosts.forkserver import Forked
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import Spawner
from perdure.runtime.hosts.uv import run_online
from tests.hosting.releases import answer, flow, make_database, make_job, told
from tests.hosting.test_forkserver import kept, warm

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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere hosts always start from nothing")
async def test_numpy_is_left_out_of_the_fork_server_and_works_in_hosts(
    tmp_path: Path, tmp_db: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts threads when it is imported, which would not survive a fork."""
    caplog.set_level(logging.INFO, "perdure.hosts")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # as on any machine with more than one processor
    libraries = tmp_path / "libs"
    await run_online(tmp_path, "pip", "install", "--python", sys.executable, "--target", libraries, "numpy")
    body = "a = numpy.arange(10000.0).reshape(100, 100)\nreturn int(numpy.trace(a @ a.T)), numpy.__file__"
    job = make_job(
        tmp_path, flow(body, "import numpy\n"), await make_database(tmp_db),
        path=[*sys.path, str(libraries)], packages=("shop",),
    )  # fmt: skip
    async with kept(await Spawner()(job)) as host:  # from nothing
        assert any(name.partition(".")[0] == "numpy" for name in (await told(host)).modules)
        first = await answer(tmp_db)
    async with warm(job) as spawner, kept(await spawner(job)) as host:
        assert isinstance(host, Forked)
        await told(host)
        assert await answer(tmp_db, id="o-2") == first
    total, file = first
    assert total == sum(n * n for n in range(10000))
    assert Path(file).is_relative_to(libraries)
    assert "numpy starts a thread when it is imported" in caplog.text
