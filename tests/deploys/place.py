"""Folders with code, workers that run it, and what runs do meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from perdure import Run, RunInfo, Status
from tests.process import Child, Spawner

WORKER = Path(__file__).with_name("worker.py")


class Place:
    """Folders with code, and workers that run it.

    Args:
        folder: for all files.
        url: of the database.
        spawn: starts workers.
    """

    def __init__(self, folder: Path, url: str, spawn: Spawner) -> None:
        self.folder = folder
        self._url = url
        self._spawn = spawn

    def worker(self, name: str, code: str | Mapping[str, str], *options: str, **env: str) -> Child:
        """Start a worker of the code in a folder of its own, and wait until it is ready."""
        app = self.folder / name
        app.mkdir(exist_ok=True)
        for file, text in ({"shop.py": code} if isinstance(code, str) else code).items():
            (app / file).write_text(text, "utf-8")
        path = ":".join(part for part in sys.path if part)
        given = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(self.folder / "cache"), **env}
        child = self._spawn(sys.executable, str(WORKER), self._url, str(app), *options, env=given)
        child.expect("ready", within=20)
        return child

    def forget(self, name: str) -> None:
        """Delete the code in a folder."""
        for file in (self.folder / name).glob("*.py"):
            file.unlink()


def end(child: Child) -> None:
    """End a worker in good order."""
    child.process.terminate()
    assert child.finish().code == 0


async def until(run: Run[object], status: Status) -> RunInfo:
    """Wait until a run is in a state."""
    async with asyncio.timeout(40):
        while (info := await run.info()).status != status:
            await asyncio.sleep(0.05)
    return info


async def until_recorded(run: Run[object], kind: str) -> None:
    """Wait until a run has an event of a type."""
    async with asyncio.timeout(40):
        while not any(event.type == kind for event in await run.history()):
            await asyncio.sleep(0.05)
