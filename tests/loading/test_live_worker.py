"""A deploy over the files of a live worker: a run that then imports what has changed goes on in a host.

The host has the recorded source: no run ever has a mixture of two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perdure import Engine
from tests.process import Spawner
from tests.version.projects import write

FLOW = """
import perdure

@perdure.step
def first():
    from shop import late
    return late.NAME

@perdure.step
def second():
    from shop import later
    return later.NAME

@perdure.workflow
def order(name):
    return first() if name == "first" else second()
"""
WORKER = Path(__file__).with_name("live.py")


async def test_files_swapped_under_a_live_worker(tmp_path: Path, tmp_db: str, spawn: Spawner) -> None:
    said = "NAME = 'v1'\n"
    files = {"shop/__init__.py": "", "shop/flow.py": FLOW, "shop/late.py": said, "shop/later.py": said}
    app = write(tmp_path / "app", files)
    worker = spawn(sys.executable, WORKER, tmp_db, app)
    worker.expect("open")
    async with Engine(tmp_db, worker=False) as engine:
        assert await (await engine.start("order", "first", id="before")).result() == "v1"
        write(
            app, {path: text.replace("v1", "v2") for path, text in files.items()} | {"shop/later.py": "NAME = 'v2'\n"}
        )
        assert await (await engine.start("order", "first", id="loaded")).result() == "v1"
        assert await (await engine.start("order", "second", id="late")).result() == "v1"
