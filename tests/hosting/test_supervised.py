"""Real hosts under a supervisor: more old versions than places, and a host that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from perdure import Engine, Run
from perdure.runtime.hosts.forkserver import WarmSpawner
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import Spawner
from perdure.runtime.hosts.supervisor import HostChange, Supervisor
from tests.hosting.releases import flow, make_database, make_job
from tests.hosting.test_orphans import alive
from tests.hosting.test_process import until, waiting


@asynccontextmanager
async def supervised(jobs: dict[str, Job], told: list[HostChange], max_hosts: int = 2) -> AsyncIterator[Supervisor]:
    """Give a supervisor of these releases; afterwards no process of it is left."""
    spawner = WarmSpawner(Spawner())

    async def job(release: str) -> Job:
        return jobs[release]

    supervisor = Supervisor(spawner, job, told.append, max_hosts=max_hosts, turn_s=0.3)
    pids = set()
    try:
        yield supervisor
    finally:
        pids |= {host.pid for host in supervisor.hosts}
        await supervisor.close(5.0)
        await spawner.close()
        assert not [pid for pid in pids if alive(pid)]


def named(tmp: Path, number: int, url: str) -> Job:
    """Return the job of a release whose workflow has a name of its own."""
    files = {path: text.replace("order", f"order{number}") for path, text in flow(f"return 'v{number}'").items()}
    job = make_job(tmp / str(number), files, url, f"shop.flow:order{number}", workflow=f"order{number}")
    return msgspec.structs.replace(job, release=str(number))


async def test_six_versions_share_two_places_and_all_runs_finish(tmp_path: Path, tmp_db: str) -> None:
    url = await make_database(tmp_db)
    for number in range(6):
        (tmp_path / str(number)).mkdir()
    jobs = {str(number): named(tmp_path, number, url) for number in range(6)}
    told: list[HostChange] = []
    async with supervised(jobs, told) as supervisor, Engine(url, worker=False) as engine:
        runs: dict[str, Run[str]] = {
            release: await engine.start(f"order{release}", id=f"r-{release}") for release in jobs
        }
        left = dict(runs)
        async with asyncio.timeout(60):
            while left:
                supervisor.want({release: float(release) for release in left})
                assert len(supervisor.hosts) <= 2
                await asyncio.sleep(0.05)
                infos = [(release, await run.info()) for release, run in left.items()]
                left = {release: runs[release] for release, info in infos if info.status != "completed"}
        assert [await run.result() for run in runs.values()] == [f"v{number}" for number in range(6)]


async def test_a_host_that_is_killed_is_started_again(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db))
    told: list[HostChange] = []
    async with supervised({"71": job}, told) as supervisor, Engine(tmp_db, worker=False) as engine:
        supervisor.ensure("71")
        run = await engine.start("order", id="o-1")
        await until(tmp_path / "begun")
        first = supervisor.hosts[0].pid
        os.kill(first, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert await run.result() != first
    assert [change.kind for change in told[:3]] == ["ready", "ended", "ready"]
