"""Small releases on disk, stored as a database would store them, and hosts started for them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from perdure import Engine
from perdure.runtime.hosts.job import Entry, Job, Told
from perdure.runtime.hosts.process import HostProcess, Spawner
from tests.version.projects import source, survey, write

PATIENCE_S = 15.0
FLOW = """
import perdure

@perdure.workflow
async def order(*args):
    return await answer(*args)

"""


def flow(body: str, head: str = "") -> dict[str, str]:
    """Return a package ``shop`` whose workflow ``order`` has one step with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return {"shop/__init__.py": "", "shop/flow.py": f"{head}{FLOW}@perdure.step\nasync def answer(*args):\n{lines}"}


def make_job(tmp: Path, files: Mapping[str, str | bytes], url: str, place: str = "shop.flow:order", **more: Any) -> Job:
    """Register a project and return the job that hosts it; the project itself is gone afterwards."""
    folder = write(tmp / "v1", files)
    taken = survey(folder, source(folder, place), packages=more.pop("packages", None))
    blobs = tmp / "blobs"
    blobs.mkdir(exist_ok=True)
    for blob in taken.blobs({file.sha256 for file in taken.release.manifest.values()}):
        (blobs / blob.sha256).write_bytes(zlib.decompress(blob.data))
    folder.rename(tmp / f"gone-{len(list(tmp.iterdir()))}")
    settings = more.pop("settings", {"poll": 0.05, "lease": "2s", "grace": "5s"})
    job = Job(
        release="71", tree=taken.release.tree_sha256, manifest=dict(taken.release.manifest),
        roots=list(taken.release.roots), entries=[Entry("order", place, 7, "1.3.0")], cache=str(tmp / "cache"), url=url,
        settings=settings, blobs=str(blobs),
    )  # fmt: skip
    return msgspec.structs.replace(job, **more)


@asynccontextmanager
async def hosted(job: Job, spawner: Spawner | None = None) -> AsyncIterator[HostProcess]:
    """Start a host; end it at the end."""
    process = await (spawner or Spawner())(job)
    try:
        yield process
    finally:
        process.kill()
        await process.ended()
        process.close()


async def told(process: HostProcess, state: str | None = "ready") -> Told:
    """Wait for what a host tells next, which must be this."""
    async with asyncio.timeout(PATIENCE_S):
        found = await process.told()
    assert found is not None, "the host ended"
    assert state in (None, found.state), found
    return found


async def answer(url: str, *args: Any, id: str = "o-1") -> Any:
    """Start a run of the workflow and return its result. Nobody but a host can execute it."""
    async with Engine(url, worker=False) as engine:
        run = await engine.start("order", *args, id=id)
        async with asyncio.timeout(PATIENCE_S):
            return await run.result()


async def make_database(url: str) -> str:
    """Make an empty database, as the worker of a host has done before."""
    async with Engine(url, worker=False):
        return url
