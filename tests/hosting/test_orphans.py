"""A host never outlives its worker for long, however the worker ended and whatever the host is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from perdure import Engine
from tests.hosting.releases import flow, make_database, make_job
from tests.hosting.test_process import until, waiting
from tests.process import Spawner

PARENT = Path(__file__).with_name("parent.py")
LIMIT_S = 15.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> float:
    """Wait until a process is gone; return how long that took."""
    begun = time.monotonic()
    while alive(pid) and time.monotonic() - begun < 2 * LIMIT_S:
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


BUSY = "while True:\n    pass"
STUBBORN = "import signal\nfor n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\n"


@pytest.mark.parametrize("how", ["idle", "loading", "step", "stubborn", "shared pipe", "forked"])
async def test_the_worker_is_killed(tmp_path: Path, tmp_db: str, spawn: Spawner, how: str) -> None:
    files: dict[str, str] = waiting(tmp_path)
    bootstrap = ""
    if how == "loading":
        files |= {"shop/boot.py": f"open({str(tmp_path / 'begun')!r}, 'w').write('x')\n{BUSY}\n"}
        bootstrap = "shop.boot:init"
    if how == "stubborn":
        files["shop/flow.py"] = STUBBORN + files["shop/flow.py"].replace(
            "wait_for('go')", "\n    ".join(BUSY.split("\n"))
        )
    job = make_job(tmp_path, files, await make_database(tmp_db), bootstrap=bootstrap)
    told = tmp_path / "job"
    told.write_bytes(msgspec.msgpack.encode(job))
    parent = spawn(sys.executable, PARENT, told, how)
    pids = [int(word) for word in parent.expect("hosts", 15).split()[1:]]
    if how in ("step", "stubborn"):
        async with Engine(tmp_db, worker=False) as engine:
            await engine.start("order", id="o-1")
        await until(tmp_path / "begun")
    if how == "loading":
        await until(tmp_path / "begun")
    assert all(map(alive, pids))
    os.kill(parent.pid, signal.SIGKILL)
    took = [await gone(pid) for pid in pids]
    assert sum(took) < LIMIT_S
    assert not (tmp_path / "ended").exists()


async def test_the_processes_of_a_step_go_with_it(tmp_path: Path, tmp_db: str, spawn: Spawner) -> None:
    body = (
        "from concurrent.futures import ProcessPoolExecutor\nfrom shop.work import work\n"
        "with ProcessPoolExecutor(1) as pool:\n    pool.submit(work).result()"
    )
    said = f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}.')"
    work = f"import os, time\ndef work():\n    {said}\n    time.sleep(60)\n"
    job = make_job(tmp_path, flow(body) | {"shop/work.py": work}, await make_database(tmp_db))
    told = tmp_path / "job"
    told.write_bytes(msgspec.msgpack.encode(job))
    parent = spawn(sys.executable, PARENT, told, "step")
    (host,) = (int(word) for word in parent.expect("hosts", 15).split()[1:])
    async with Engine(tmp_db, worker=False) as engine:
        await engine.start("order", id="o-1")
    async with asyncio.timeout(40):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("."):
            await asyncio.sleep(0.01)
    child = int((tmp_path / "pid").read_text().rstrip("."))
    os.kill(parent.pid, signal.SIGKILL)
    assert await gone(host) + await gone(child) < LIMIT_S
