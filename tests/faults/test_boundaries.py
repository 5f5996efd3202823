"""Whatever happens at whichever call of the store, a fresh engine brings the run to the same end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.store.base import Store
from perdure.testing.faults import Fault
from tests.faults import programs
from tests.faults.lives import CRASHES, RUN_ID, Mortal, Shelf, canonical, engine_on, first_life, second_life

PROGRAMS = ("plain", "straight", "cancelled")
FEWEST = {"plain": 15, "straight": 12, "cancelled": 10}
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
    check_effects("without a fault", crashes=0)
    return store


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", list(Fault))
async def test_every_boundary(
    kind: str, program: str, fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
        check_effects(where, crashes=fault in CRASHES)
    with capsys.disabled():
        print(f"\n{program} on {kind}: {injected} boundaries x {fault}", end="")
    assert injected >= FEWEST[program]


def check_effects(where: str, *, crashes: int) -> None:
    """Never more often than the faults explain: one more attempt of what a crash interrupted, and none otherwise."""
    for key, times in programs.EFFECTS.items():
        usual = programs.USUAL.get(key.rpartition("|")[2], 1)
        extra = 0 if key.rpartition("|")[2] in programs.AT_MOST_ONCE else crashes
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


async def test_an_engine_that_cannot_open_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Mortal(Shelf("sqlite", tmp_path / "test.db").store(), at=1, fault=Fault.ERROR_BEFORE, only={"register"})
    engine = engine_on(store)
    with pytest.raises(perdure.StoreUnavailable):
        await engine.open()
    await engine.open()
    assert await engine.run(programs.plain, 1)
    await engine.close()


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("successes", [0, 1, 2, 5])
async def test_one_engine_makes_progress_under_faults_that_never_end(
    kind: str, fault: Fault, successes: int, tmp_path: Path
) -> None:
    """Of every few commits one fails, for as long as the engine lives: nothing is lost, nothing is done again."""
    programs.EFFECTS.clear()
    shelf = Shelf(kind, tmp_path / "test.db")
    store = Flickering(shelf.store(), fault, successes)
    async with engine_on(store) as engine:
        for program in PROGRAMS[:2]:
            assert await engine.run(getattr(programs, program), 1, id=f"{RUN_ID}-{program}")
    assert store.injected >= 2
    check_effects("in one life", crashes=0)
    assert [finding for finding in shelf.examine().findings if finding.rule != "acknowledged"] == []


class Flickering(Mortal):
    """Fails once after every few commits that succeed."""

    def __init__(self, inner: Store, fault: Fault, successes: int) -> None:
        super().__init__(inner, fault=fault, only={"commit"})
        self._successes = successes
        self._good = 0

    def _cross(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.at = 0
        if name == "commit":
            self.at = self.boundaries + 1 if self._good >= self._successes else 0
            self._good = 0 if self.at else self._good + 1
            if self._successes == 0:
                self.at = self.boundaries + 1 if self.boundaries % 2 == 0 else 0
        return super()._cross(name, function, *args, **kwargs)
