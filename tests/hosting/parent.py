"""A worker that keeps one host, for tests that kill it: says the host's pid once the host is ready, then waits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from perdure.runtime.hosts.forkserver import WarmSpawner
from perdure.runtime.hosts.job import read_job
from perdure.runtime.hosts.process import HostProcess, Spawner


async def main(file: str, how: str) -> None:
    job = read_job(Path(file).read_bytes())
    spawner = WarmSpawner(Spawner(), forks=how == "forked")
    host = await spawner(job)
    if how != "loading":
        await host.told()
    hosts: list[HostProcess] = [host]
    if how == "forked":
        assert await spawner.warmed()
        hosts.append(await spawner(job))
        await hosts[-1].told()
    if how == "shared pipe" and not os.fork():
        signal.pause()  # holds our ends of the pipes open, as a pool of processes would
    print("hosts", *(one.pid for one in hosts), flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
