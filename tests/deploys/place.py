"""Folders with code that is deployed, workers that run it, and runs that outlive it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from perdure import Engine, Run, RunInfo, Status
from tests.process import Child, Spawner

WORKER = Path(__file__).with_name("worker.py")


class Place:
    """Folders with code, and workers that run it."""

    def __init__(self, folder: Path, url: str, spawn: Spawner) -> None:
        self.folder = folder
        self._url = url
        self._spawn = spawn

    def worker(self, name: str, text: str, *options: str, **env: str) -> Child:
        """Start a worker of the code in a folder of its own, and wait until it is ready."""
        app = self.folder / name
        app.mkdir(exist_ok=True)
        (app / "shop.py").write_text(text, "utf-8")
        path = ":".join(part for part in sys.path if part)
        given = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(self.folder / "cache"), **env}
        child = self._spawn(sys.executable, str(WORKER), self._url, str(app), *options, env=given)
        child.expect("ready", within=20)
        return child


def end(child: Child) -> None:
    """End a worker in good order."""
    child.process.terminate()
    assert child.finish(20).code == 0


async def until(run: Run[object], status: Status) -> RunInfo:
    """Wait until a run is in a state."""
    async with asyncio.timeout(25):
        while (info := await run.info()).status != status:
            await asyncio.sleep(0.05)
    return info


async def begun(engine: Engine, place: Place, text: str, **env: str) -> Run[object]:
    """Return a run that began on this code and waits; its worker is gone, and so is the source."""
    worker = await asyncio.to_thread(place.worker, "old", text, **env)
    run: Run[object] = await engine.start("fulfil", id="r")
    async with asyncio.timeout(20):
        while not any(event.type == "step_completed" for event in await run.history()):
            await asyncio.sleep(0.05)
    await asyncio.to_thread(end, worker)
    (place.folder / "old" / "shop.py").unlink()
    return run
