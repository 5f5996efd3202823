"""An application in several versions: published into a database, and deployed to workers that are processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import perdure
from perdure.store.base import StoreOptions, open_store
from perdure.verify.database import verify
from perdure.version import publication
from tests.process import Child, Spawner
from tests.version.projects import survey, write

SRC = str(Path(perdure.__file__).parents[1])
PATIENCE_S = 60.0
OLD = """
a = await charge(item)
await perdure.sleep(pause)
b = await ship(item)
return [a, b]
"""
STEPS = """
import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import perdure


def note(text: str) -> None:
    with open(os.environ.get("LEDGER", os.devnull), "a") as ledger:
        ledger.write(text + "\\n")


@perdure.step
async def charge(item: str) -> str:
    note(f"charge {item}")
    return f"charged {item}"


@perdure.step
async def pack(item: str) -> str:
    note(f"pack {item}")
    return f"packed {item}"


@perdure.step
async def ship(item: str) -> str:
    note(f"ship {item}")
    return f"shipped {item}"


@perdure.step
async def fraud(item: str) -> str:
    note(f"fraud {item}")
    return "fine"


@perdure.step
async def held(item: str) -> str:
    note(f"held {item}")
    while not Path(os.environ["GATE"]).exists():
        await asyncio.sleep(0.02)
    return f"let go {item}"

"""


def project(
    body: str, version: str, *, steps: str = STEPS, signature: str = "item: str, pause: float = 3600.0"
) -> dict[str, str]:
    """Return the files of a package whose workflow ``order`` has this body."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    head = (
        f'\n@perdure.workflow(name="order", version="{version}")\nasync def order(item: str, pause: float = 3600.0):\n'
    )
    return {"shop/__init__.py": "", "shop/flow.py": f"{steps}{head}{lines}"}


def publish(url: str, folder: Path, version: str) -> int:
    """Make what is in a folder known as a version, as a deploy does; return its number."""
    taken = survey(folder)
    store = open_store(url, StoreOptions())
    store.open()
    try:
        store.catalog.add_blobs(taken.blobs({file.sha256 for file in taken.release.manifest.values()}))
        decide = partial(_decide, version)
        (done,) = store.catalog.register(
            taken.release, taken.definitions, decide, at=store.now(), actor="ci", reason=""
        )  # fmt: skip
        assert done.label == version
        return done.version_id
    finally:
        store.close()


def _decide(version: str, known: Any, definition: Any, differing: Any) -> Any:
    return publication.decide(
        known, definition.sha256, version, on_unbumped="auto", registration="worker", differing=differing
    )  # fmt: skip


class Application:
    """One database, a folder for each version, and workers.

    Args:
        tmp: a folder.
        url: the database.
        spawn: starts processes.
    """

    def __init__(self, tmp: Path, url: str, spawn: Spawner) -> None:
        self.tmp = tmp
        self.url = url
        self._spawn = spawn
        self.ledger = tmp / "ledger"
        self.gate = tmp / "gate"

    def version(self, version: str, body: str, **more: Any) -> Path:
        """Publish a version; return its folder."""
        folder = write(self.tmp / version, project(body, version, **more))
        publish(self.url, folder, version)
        return folder

    def worker(self, folder: Path, *options: str, lease: str = "2s", **environment: str) -> Child:
        """Start a worker on what is in a folder, with further options of the command."""
        env = {
            "PYTHONPATH": os.pathsep.join([str(folder), SRC]), "LEDGER": str(self.ledger), "GATE": str(self.gate),
            "XDG_CACHE_HOME": str(self.tmp / "cache"), **environment,
        }  # fmt: skip
        return self._spawn(
            sys.executable, "-m", "perdure", "worker", "shop.flow", "--db", self.url, "--lease", lease, "--grace", "1s",
            *options, env=env, folder=folder,
        )  # fmt: skip

    def lines(self) -> list[str]:
        """Return what steps did."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def client(self) -> perdure.Engine:
        """Return a client, not yet open."""
        return perdure.Engine(self.url, worker=False)


async def until(holds: Callable[[], Any], what: str = "") -> None:
    """Wait until something holds. It may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, what or "it took too long"
        await asyncio.sleep(0.02)


async def in_state(engine: perdure.Engine, run_id: str, *states: str) -> None:
    """Wait until a run is in one of these states."""

    async def look() -> bool:
        return str(await engine.get(run_id).status()) in states

    await until(look, f"{run_id} is never {states}")


def sound(shop: Application) -> None:
    """Check that everything in the database is as it should be."""
    assert [str(finding) for finding in verify(shop.url).findings] == []


async def begun(shop: Application, engine: perdure.Engine, *ids: str, item: str = "tea", pause: float = 3600.0) -> None:
    """Let runs begin on 1.3.0 and come to their pause; their worker is gone then."""
    worker = shop.worker(shop.tmp / "1.3.0")
    before = len(shop.lines())
    for run_id in ids:
        await engine.start("order", item, pause, id=run_id, version="1.3.0")
    await until(lambda: len(shop.lines()) >= before + len(ids))
    worker.send(signal.SIGTERM)
    worker.finish()
    for run_id in ids:
        await in_state(engine, run_id, "waiting", "pending")
