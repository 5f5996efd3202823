"""Power cuts under a whole engine: what a caller or a body was told is there afterwards, in mode `host`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from perdure.verify.database import opened, verify
from tests.faults.disk import STRACE, Disk, calls
from tests.house.tree import ROOT
from tests.process import Spawner

WORK = """
import asyncio, os, sys
import perdure

@perdure.step
async def count(run: int, n: int) -> str:
    return f"{run}-{n}" * 50

@perdure.workflow(unversioned=True)
async def counting(run: int) -> int:
    for n in range(3):
        await count(run, n)
        os.write(1, b"ack step-%d-%d\\n" % (run, n))
    return run

async def main():
    async with perdure.Engine(f"sqlite:///{sys.argv[1]}", [counting], durability=sys.argv[2]) as engine:
        for run in range(8):
            handle = await engine.start(counting, run, id=f"run-{run}")
            os.write(1, b"ack start-%d\\n" % run)
            await handle.result()
            os.write(1, b"ack end-%d\\n" % run)
        os._exit(0)

asyncio.run(main())
"""
PREPARE = """
import asyncio, sys
import perdure

async def main():
    async with perdure.Engine(f"sqlite:///{sys.argv[1]}", worker=False):
        pass

asyncio.run(main())
"""


def cuts(spawn: Spawner, folder: Path, mode: str) -> list[tuple[str, set[str]]]:
    """Cut the power after each acknowledgement; return what was acknowledged last and what is there of all."""
    folder.mkdir()
    path = folder / "runs.db"
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    assert spawn(sys.executable, "-c", PREPARE, path, env=env).finish(30).code == 0
    disk = Disk(folder, {"runs.db": path.read_bytes()})
    log = folder.parent / f"{folder.name}.strace"
    result = spawn(*STRACE, "-o", log, sys.executable, "-c", WORK, path, mode, env=env).finish(60)
    assert result.code == 0, result.err
    found = []
    scratch = folder.parent / "scratch"
    for call in calls(log.read_text("ascii")):
        if call.name != "ack":
            disk.apply(call)
        elif call.data.startswith(b"ack "):
            scratch.mkdir()
            disk.cut(scratch, None)
            found.append((call.data.decode().split()[1], facts(scratch / "runs.db")))
            shutil.rmtree(scratch)
    return found


def facts(path: Path) -> set[str]:
    """Return what is in the file, in the words of the acknowledgements."""
    with opened(f"sqlite:///{path}") as evidence:
        cases = list(evidence.cases())
    assert verify(f"sqlite:///{path}").findings == []
    there = set()
    for case in cases:
        run = case.row.id.removeprefix("run-")
        there.add(f"start-{run}")
        steps = [fact for fact in case.facts if fact.type == "step_completed"]
        there |= {f"step-{run}-{n}" for n in range(len(steps))}
        there |= {f"end-{run}" for fact in case.facts if fact.type == "run_completed"}
    return there


@pytest.mark.parametrize("mode", ["host", "process"])
def test_what_was_acknowledged_survives_a_power_cut_in_mode_host_and_only_there(
    mode: str, spawn: Spawner, tmp_path: Path
) -> None:
    found = cuts(spawn, tmp_path / "data", mode)
    assert len(found) == 8 * 5
    told: set[str] = set()
    lost = 0
    for last, there in found:
        told.add(last)
        lost += len(told - there)
    assert (lost == 0) == (mode == "host"), f"{lost} acknowledged facts lost"
