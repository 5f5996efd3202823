"""Hosts are forked from a warm process where that is safe, and are the same hosts as those started from nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.runtime.hosts.forkserver import Forked, ForkServer, WarmSpawner
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import HostProcess, Spawner
from perdure.runtime.hosts.warmth import Warmth
from tests.hosting.releases import answer, flow, make_database, make_job, told
from tests.hosting.test_process import ended
from tests.version.projects import write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere hosts always start from nothing")
BODY = "import sys, os\nreturn os.getpid(), sorted(sys.modules), [c for c in {'a', 'b', 'c', 'd', 'e'}]"


@asynccontextmanager
async def warm(job: Job) -> AsyncIterator[WarmSpawner]:
    """Give a spawner that has learned from a first host of the job."""
    spawner = WarmSpawner(Spawner())
    async with kept(await spawner(job)) as first:
        await told(first)
        await spawner.warmed()
    try:
        yield spawner
    finally:
        await spawner.close()


@asynccontextmanager
async def kept(host: HostProcess) -> AsyncIterator[HostProcess]:
    try:
        yield host
    finally:
        host.kill()
        await ended(host)
        host.close()


async def test_a_later_host_is_forked_and_runs_the_stored_code(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow(BODY), await make_database(tmp_db))
    async with warm(job) as spawner, kept(await spawner(job)) as host:
        assert isinstance(host, Forked)
        ready = await told(host)
        assert "shop" not in ready.modules
        pid, modules, order = await answer(tmp_db)
        assert pid == host.pid
        assert "shop.flow" in modules
        host.terminate()
        assert await ended(host) == 0
        async with kept(await spawner(job)) as other:
            await told(other)
            assert (await answer(tmp_db, id="o-2"))[2] == order


async def test_it_is_known_how_a_forked_host_ended(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow(BODY), await make_database(tmp_db))
    async with warm(job) as spawner, kept(await spawner(job)) as host:
        await told(host)
        os.kill(host.pid, signal.SIGSEGV)
        assert await ended(host) == -signal.SIGSEGV


async def test_forked_hosts_make_ids_of_their_own(tmp_path: Path, tmp_db: str) -> None:
    head = "import os, random, uuid\nSAID = (random.random(), str(uuid.uuid4()), os.urandom(4).hex())\n"
    job = make_job(tmp_path, flow("return SAID", head), await make_database(tmp_db))
    async with warm(job) as spawner:
        said = []
        for number in range(3):
            async with kept(await spawner(job)) as host:
                await told(host)
                said += await answer(tmp_db, id=f"o-{number}")
    assert len(set(said)) == 9


async def test_when_the_server_is_killed_its_hosts_leave_and_others_start_from_nothing(
    tmp_path: Path, tmp_db: str
) -> None:
    job = make_job(tmp_path, flow(BODY), await make_database(tmp_db))
    async with warm(job) as spawner, kept(await spawner(job)) as host:
        await told(host)
        server = int(Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(server, signal.SIGKILL)
        await ended(host)
        async with kept(await spawner(job)) as other:
            assert not isinstance(other, Forked)
            await told(other)
            assert (await answer(tmp_db))[0] == other.pid


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"


async def test_a_module_that_starts_a_thread_is_left_out(
    tmp_path: Path, tmp_db: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As numpy does. The host that needs it imports it itself."""
    caplog.set_level(logging.INFO, "perdure.hosts")
    numbery = {"numbery/__init__.py": f"from numbery import core\n{THREAD}", "numbery/core.py": ""}
    libraries = write(tmp_path / "libs", numbery | {"quiet.py": "", "above.py": "import numbery\n"})
    body = "import sys, threading\nreturn threading.active_count() > 1, sorted(sys.modules)"
    job = make_job(
        tmp_path, flow(body, "import quiet, above\n"), await make_database(tmp_db), path=[*sys.path, str(libraries)],
        packages=("shop",),
    )  # fmt: skip
    async with warm(job) as spawner, kept(await spawner(job)) as host:
        assert isinstance(host, Forked)
        await told(host)
        threads, modules = await answer(tmp_db)
        assert threads
        assert {"quiet", "numbery", "above"} <= set(modules)
    said = [record.message.partition(" ")[0] for record in caplog.records if "starts a thread" in record.message]
    assert sorted(said) == ["above", "numbery"]


async def test_deployed_code_is_never_imported_by_the_server(tmp_path: Path) -> None:
    """Not by itself, and not by a library that looks for plug-ins."""
    seen = tmp_path / "seen"
    shop = {"shop/__init__.py": f"open({str(seen)!r}, 'w')\n", "added.py": f"open({str(seen)!r}, 'w')\n"}
    app = write(tmp_path / "v2", shop)
    libraries = write(tmp_path / "libs", {"plugs.py": "import shop, added\n"})
    warmth = Warmth(["shop", "plugs"], ["shop", "added"], [], [*sys.path, str(app), str(libraries)])
    server = await ForkServer.start(warmth, None)
    assert (await server.verdict()).what == "warm"
    await server.close()
    assert not seen.exists()


async def test_where_forking_is_off_every_host_starts_from_nothing(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow(BODY), await make_database(tmp_db))
    spawner = WarmSpawner(Spawner(), forks=False)
    async with kept(await spawner(job)) as host:
        await told(host)
        assert not await spawner.warmed()
        async with kept(await spawner(job)) as other:
            assert not isinstance(other, Forked)
    await spawner.close()


async def test_many_are_forked_at_once(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow(BODY), await make_database(tmp_db))
    async with warm(job) as spawner:
        hosts = await asyncio.gather(*(spawner(job) for _ in range(6)))
        try:
            assert len({host.pid for host in hosts}) == 6
            for host in hosts:
                await told(host)
        finally:
            for host in hosts:
                host.kill()
                await ended(host)
                host.close()
