"""Whatever happens at whichever call of the store, a fresh engine brings the run to the same end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure

from perdure.testing.faults import Fault
from tests.faults import programs
from tests.faults.lives import CRASHES, RUN_ID, Mortal, Shelf, canonical, engine_on, first_life, second_life

PROGRAMS = ("plain", "straight", "cancelled")
FEWEST = {"plain": 20, "straight": 12, "cancelled": 12}
"""Boundaries a program crosses at the very least: below that, nothing was tested."""


def check(shelf: Shelf, where: str) -> None:
    report = shelf.examine()
    assert report.findings == [], f"{where}: {[str(finding) for finding in report.findings]}"
    assert report.runs == 1, where


async def fault_free(shelf: Shelf, program: str) -> Mortal:
    programs.EFFECTS.clear()
    store = Mortal(shelf.store())
    await first_life(store, program)
    check(shelf, "without a fault")
    check_effects("without a fault", crashed=False)
    return store


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", list(Fault))
async def test_every_boundary(kind: str, program: str, fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Shelf(kind, tmp_path / "model.db")
    store = await fault_free(model, program)
    expected = canonical(model)
    assert store.boundaries >= FEWEST[program]
    injected = 0
    number = 0
    while True:
        number += 1
        programs.EFFECTS.clear()
        shelf = Shelf(kind, tmp_path / f"{number}.db")
        store = Mortal(shelf.store(), at=number, fault=fault)
        await first_life(store, program)
        if not store.injected:
            break
        injected += 1
        where = f"{fault} at {number} ({store.trace[number - 1]})"
        shelf.time_passes()
        await second_life(shelf, program)
        check(shelf, where)
        assert canonical(shelf) == expected, where
        check_effects(where, crashed=fault in CRASHES)
    with capsys.disabled():
        print(f"\n{program} on {kind}: {injected} boundaries x {fault}", end="")
    assert injected >= FEWEST[program]


def check_effects(where: str, *, crashed: bool) -> None:
    """Never more often than the fault explains: one more attempt of what a crash interrupted, and none otherwise."""
    for key, times in programs.EFFECTS.items():
        usual = programs.USUAL.get(key.rpartition("|")[2], 1)
        extra = crashed and key.rpartition("|")[2] not in programs.AT_MOST_ONCE
        assert times <= usual + extra, f"{where}: {key} {times} times"


async def test_a_cancel_that_was_sent_twice_arrives_once(tmp_path: Path) -> None:
    """As when the answer to the first send was lost: the clean-up must not be hit by the repeat."""
    shelf = Shelf("memory", tmp_path)
    store = Mortal(shelf.store(), only={"commit"})
    async with engine_on(store) as engine:
        run = await engine.start(programs.cancelled, 1, id=RUN_ID)
        while not [event for event in await run.history() if event.type == "step_completed"]:
            await asyncio.sleep(0.001)
        store.at, store.fault = store.boundaries + 1, Fault.TWICE
        await run.cancel(actor="test", reason="test")
        with pytest.raises(perdure.RunCancelled):
            await run.result()
        types = [event.type for event in await run.history()]
    assert store.injected == 1
    assert types.count("cancel_requested") == 2
    assert types.count("step_completed") == 2
    check(shelf, "after a cancel that was sent twice")
