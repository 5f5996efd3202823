"""Whatever happens at whichever call of the store, a fresh engine brings the run to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.faults import Fault
from tests.faults import programs
from tests.faults.lives import CRASHES, Mortal, Shelf, canonical, first_life, second_life

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
    assert set(programs.EFFECTS.values()) <= {1, 2}
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
    """At least once; and no more often than the faults explain."""
    for key, count in programs.EFFECTS.items():
        assert count <= 3, f"{where}: {key} {count} times"
