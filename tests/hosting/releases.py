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
from perdure.store.base import StoreOptions, open_store
from perdure.store.catalog.base import Registered
from perdure.version.definition import Definition
from perdure.version.known import Known
from perdure.version.publication import Decision, Differing, decide
from perdure.version.survey import Survey
from tests.version.projects import source, survey, write

PATIENCE_S = 40.0
FLOW = """
import perdure

@perdure.workflow
def order(*args):
    return answer(*args)

"""


def flow(body: str, head: str = "") -> dict[str, str]:
    """Return a package ``shop`` whose workflow ``order`` has one step with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return {"shop/__init__.py": "", "shop/flow.py": f"{head}{FLOW}@perdure.step\ndef answer(*args):\n{lines}"}


def make_job(
    tmp: Path, files: Mapping[str, str | bytes], url: str, place: str = "shop.flow:order", *, in_folder: bool = False,
    also: Mapping[str, str] | None = None, workflow: str = "order", packages: tuple[str, ...] | None = None,
    **more: Any,
) -> Job:  # fmt: skip
    """Register a project and return the job that hosts it; the project itself is gone afterwards.

    `also` has further workflows and where they are; `in_folder` puts the files into a folder, so that they can be
    altered, else they are in the database.
    """
    folder = write(tmp / "v1", files)
    places = {workflow: place, **(also or {})}
    sources = [source(folder, where)._replace(name=name) for name, where in places.items()]
    taken = survey(folder, *sources, packages=packages)
    registered = _register(url, taken)
    blobs = tmp / "blobs"
    blobs.mkdir(exist_ok=True)
    for blob in taken.blobs({file.sha256 for file in taken.release.manifest.values()}) if in_folder else ():
        (blobs / blob.sha256).write_bytes(zlib.decompress(blob.data))
    folder.rename(tmp / f"gone-{len(list(tmp.iterdir()))}")
    entries = [Entry(one.definition.workflow, one.definition.entry, one.version_id, one.label) for one in registered]
    job = Job(
        release="71", tree=taken.release.tree_sha256, manifest=dict(taken.release.manifest),
        roots=list(taken.release.roots), entries=entries, cache=str(tmp / "cache"), url=url,
        settings={"poll": 0.05, "lease": "2s", "grace": "5s"}, blobs=str(blobs) if in_folder else "",
    )  # fmt: skip
    return msgspec.structs.replace(job, **more)


def _register(url: str, taken: Survey) -> list[Registered]:
    store = open_store(url, StoreOptions())
    store.open()
    try:
        manifest = taken.release.manifest
        store.catalog.add_blobs(taken.blobs({file.sha256 for file in manifest.values()}))
        return store.catalog.register(
            taken.release, taken.definitions, _decide, at=store.now(), actor="a test", reason="it needs a version"
        )
    finally:
        store.close()


def _decide(known: Known, definition: Definition, differing: Differing) -> Decision:
    return decide(known, definition.sha256, "1.3.0", differing=differing)


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


def kept(cache: Path) -> list[str]:
    """Return the names of what a cache of releases holds beside its lock files."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")
