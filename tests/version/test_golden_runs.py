"""Databases of releases before, with runs in flight: what is stored is loaded, and every run ends as it would have."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from perdure import Engine
from perdure.verify.database import verify
from tests.deploys.place import Place, end
from tests.process import Spawner
from tests.version.golden_runs import GOLDEN

KEPT = sorted(GOLDEN.glob("*.db.gz"))
NEWER = """
import perdure

@perdure.workflow(version="9.0.0")
async def sleeping(count: int) -> str:
    return "newer"
"""


def test_a_release_is_kept() -> None:
    assert KEPT


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name.removesuffix(".db.gz"))
async def test_case_ver_11(kept: Path, tmp_path: Path, spawn: Spawner) -> None:
    """After an upgrade of the library the same code replays differently.

    A database as a release left it, its runs sleeping, in a gather, between attempts, in a step that was killed, past a
    patch: this release brings its schema up to date, loads the code that is stored in it, and ends every run with the
    result that stands in its tag; no step is repeated that was recorded. New runs of the old code end alike.
    Source: temporalio/sdk-go#2537.
    """
    file, ledger = tmp_path / "kept.db", tmp_path / "ledger"
    file.write_bytes(gzip.decompress(kept.read_bytes()))
    file.chmod(0o600)
    (tmp_path / "ledger.weighing").touch()  # the step that was killed is not slow again
    url = f"sqlite:///{file}"
    async with Engine(url, worker=False) as engine:
        before = {info.id: info async for info in engine.list()}
        recorded = {
            run_id: [event.name for event in await engine.get(run_id).history() if event.type == "step_completed"]
            for run_id in before
        }
        assert all(recorded[run_id] for run_id in before)
        place = Place(tmp_path, url, spawn)
        worker = await asyncio.to_thread(place.worker, "new", NEWER, LEDGER=str(ledger))
        for run_id, info in before.items():
            assert repr(await engine.get(run_id).result(timeout="30s")) == info.tags["result"]
        ended = [line.split() for line in ledger.read_text("utf-8").splitlines()]
        for run_id in before:
            after = [event.name for event in await engine.get(run_id).history() if event.type == "step_completed"]
            assert after == recorded[run_id] + [step for run, step in ended if run == run_id]
        assert await engine.run("weighing", 5, version="1.0.0") == 500
        assert await engine.run("sleeping", 3, version="9.0.0") == "newer"
        await asyncio.to_thread(end, worker)
    assert verify(url).sound
