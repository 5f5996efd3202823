"""Deploys over hundreds of running runs: each finishes on the code it began with, by its log and a ledger outside."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from perdure import Engine
from perdure.verify.database import verify
from tests.deploys.shop import LABELS, files
from tests.process import Child, Spawner
from tests.servers.fixtures import Database

HERE = Path(__file__).parent
EACH = 170
"""Runs that begin on each version."""
WORKERS = 2


class Site:
    """One deployment: a folder, and workers that run what is in it."""

    def __init__(self, folder: Path, url: str, spawn: Spawner) -> None:
        self.folder = folder / "app"
        self.ledger = folder / "ledger"
        self._url = url
        self._spawn = spawn
        self._cache = folder / "cache"
        self._workers: list[Child] = []
        self.kills = 0

    def deploy(self, number: int) -> None:
        """Put a version in the place of the one before, whose source is gone, and roll the workers over."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, text in files(number).items():
            (self.folder / name).write_text(text, "utf-8")
        before, self._workers = self._workers, [self._start() for _ in range(WORKERS)]
        for worker in self._workers:
            worker.expect("ready")
        for worker in before:
            worker.process.terminate()

    def _start(self) -> Child:
        path = os.pathsep.join(part for part in sys.path if part)
        env = {"PYTHONPATH": path, "SHOP_LEDGER": str(self.ledger), "XDG_CACHE_HOME": str(self._cache)}
        return self._spawn(sys.executable, str(HERE / "worker.py"), self._url, str(self.folder), env=env)

    def kill_one(self, luck: random.Random) -> None:
        """Kill -9 a worker, and start another."""
        victim = luck.choice(self._workers)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        self._workers.remove(victim)
        self._workers.append(self._start())
        self.kills += 1

    def close(self) -> None:
        """End all."""
        for worker in self._workers:
            worker.process.terminate()


async def check(engine: Engine, site: Site, runs: dict[str, str]) -> None:
    """Compare binding, log and ledger of every run."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for line in site.ledger.read_text("utf-8").splitlines():
        run_id, _, constant = line.split()
        seen[run_id].add(constant)
    infos = [info async for info in engine.list()]
    states = Counter(info.status.value for info in infos)
    others = [info for info in infos if info.status.value != "completed"]
    assert states == {"completed": len(runs)}, others
    for run_id, label in runs.items():
        handle = engine.get(run_id)
        info = await handle.info()
        history = await handle.history()
        assert info.version == label
        assert {event.version for event in history} == {label}
        assert seen[run_id] == {label}
        assert set(await handle.result()) == {label}


async def deploys(url: str, folder: Path, spawn: Spawner, each: int) -> None:
    """Deploy three versions, one over the runs of the others, while workers are killed."""
    site = Site(folder, url, spawn)
    luck = random.Random(7)
    runs: dict[str, str] = {}
    try:
        async with Engine(url, worker=False) as engine:
            for number, label in enumerate(LABELS):
                await asyncio.to_thread(site.deploy, number)
                for n in range(each):
                    run = await engine.start("fulfil", n, id=f"{number}-{n}")
                    runs[run.id] = label
                await asyncio.sleep(0.5)
                await asyncio.to_thread(site.kill_one, luck)
                await asyncio.sleep(0.3)
            async with asyncio.timeout(60):
                while [info async for info in engine.list(status=("pending", "running", "waiting"), limit=1)]:
                    if site.kills < 6:
                        await asyncio.sleep(0.7)
                        await asyncio.to_thread(site.kill_one, luck)
                    await asyncio.sleep(0.2)
            await check(engine, site, runs)
        assert verify(url).sound
    finally:
        site.close()


@pytest.mark.timeout(300)
async def test_three_versions_are_deployed_over_500_running_runs(tmp_path: Path, tmp_db: str, spawn: Spawner) -> None:
    await deploys(tmp_db, tmp_path, spawn, EACH)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
async def test_deploys_on_servers(kind: str, new_database: object, tmp_path: Path, spawn: Spawner) -> None:
    database: Database = new_database(kind)  # type: ignore[operator]
    await deploys(database.url, tmp_path, spawn, 40)
