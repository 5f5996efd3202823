"""Two faults in a row, and two engines of which one is frozen at a call while the other takes over."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from perdure.store.base import Store
from perdure.testing.faults import Fault
from tests.faults import programs
from tests.faults.lives import CRASHES, Mortal, Shelf, canonical, first_life, second_life
from tests.faults.test_boundaries import PROGRAMS, check, check_effects, fault_free

PAIRS = 6
"""Pairs of faults tried by chance, per program and store, where not all of them are."""
PATIENCE_S = 20.0
LOST_S = 3.0
"""A lease whose second heartbeat comes soon: it tells of what was claimed and not told to the claimer."""
SHORT_S = 1.5
"""A lease that is renewed twice a second: then at the latest a worker is told that it was declared dead."""


def model(kind: str, program: str, folder: Path) -> tuple[dict[str, Any], int]:
    """Return what the run comes to without a fault, and how many boundaries there are."""
    shelf = Shelf(kind, folder / "model.db")
    store = asyncio.run(fault_free(shelf, program))
    return canonical(shelf), store.boundaries


def check_all(shelf: Shelf, expected: dict[str, Any], where: str, *, crashes: int) -> None:
    """Nothing is lost, nothing is recorded twice, and no step was attempted more often than crashes explain."""
    check(shelf, where)
    assert canonical(shelf) == expected, where
    check_effects(where, crashes=crashes)


def two_faults(shelf: Shelf, program: str, first: tuple[Fault, int], second: tuple[Fault, int]) -> bool:
    """Live twice with a fault each and once without; say whether both faults were met."""
    met = 0
    for fault, number in (first, second):
        store = Mortal(shelf.store(), at=number, fault=fault)
        asyncio.run(first_life(store, program, LOST_S))
        met += store.injected
        shelf.time_passes()
    asyncio.run(second_life(shelf, program))
    return met == 2


def some(boundaries: int, seed: str) -> Iterator[tuple[tuple[Fault, int], tuple[Fault, int]]]:
    """Yield pairs of faults, by chance."""
    luck = random.Random(seed)
    faults = list(Fault)
    while True:
        one, two = luck.randint(1, boundaries), luck.randint(1, boundaries)
        yield (luck.choice(faults), one), (luck.choice(faults), two)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_second_fault_strikes_while_the_first_is_mended(kind: str, program: str, tmp_path: Path) -> None:
    expected, boundaries = model(kind, program, tmp_path)
    met = 0
    for number, (first, second) in enumerate(some(boundaries, f"{kind} {program}")):
        if met == PAIRS:
            break
        programs.EFFECTS.clear()
        shelf = Shelf(kind, tmp_path / f"{number}.db")
        met += two_faults(shelf, program, first, second)
        crashes = (first[0] in CRASHES) + (second[0] in CRASHES)
        check_all(shelf, expected, f"{first}, then {second}", crashes=crashes)
        assert number < 20 * PAIRS, "few runs meet both faults"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_pair_of_faults(kind: str, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected, boundaries = model(kind, program, tmp_path)
    met = 0
    faults = [*CRASHES, Fault.ERROR_AFTER]
    for one, two in product(product(faults, range(1, boundaries + 1)), repeat=2):
        programs.EFFECTS.clear()
        shelf = Shelf(kind, tmp_path / f"{one}{two}.db")
        met += two_faults(shelf, program, one, two)
        crashes = (one[0] in CRASHES) + (two[0] in CRASHES)
        check_all(shelf, expected, f"{one}, then {two}", crashes=crashes)
    with capsys.disabled():
        print(f"\n{program} on {kind}: {met} pairs", end="")
    assert met > boundaries


class Frozen(Mortal):
    """Stands still at one call, before or after it is made, until it is let go."""

    def __init__(self, inner: Store, at: int, *, before: bool) -> None:
        super().__init__(inner, at=at)
        self._before = before
        self.stands: threading.Event = threading.Event()
        self.go: threading.Event = threading.Event()

    def _fail(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._before:
            self._stand()
        answer = function(*args, **kwargs)
        if not self._before:
            self._stand()
        return answer

    def _stand(self) -> None:
        self.stands.set()
        assert self.go.wait(PATIENCE_S), "nobody let it go"


def frozen_and_released(shelf: Shelf, program: str, store: Frozen) -> bool:
    """Freeze an engine at a call, let another one finish the run, and release the first; False: it got by."""
    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(asyncio.run, first_life(store, program, lease_s=SHORT_S))
        try:
            while not (stands := store.stands.wait(0.005)) and not life.done():
                pass
            if stands:
                shelf.declare_dead()
                asyncio.run(second_life(shelf, program))
        finally:
            store.go.set()
        life.result(PATIENCE_S)
    return stands


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_engine_that_was_frozen_at_any_call_does_nothing_twice(
    program: str, before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another one has finished its run meanwhile: what it still writes is refused, what it is told is the truth."""
    expected, _ = model("sqlite", program, tmp_path)
    told: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        programs.EFFECTS.clear()
        shelf = Shelf("sqlite", tmp_path / f"{number}.db")
        store = Frozen(shelf.store(), number, before=before)
        if not frozen_and_released(shelf, program, store):
            break
        told[store.trace[number - 1]] += 1
        check_all(shelf, expected, f"frozen at {number} ({store.trace[number - 1]})", crashes=1)
    with capsys.disabled():
        print(f"\n{program}, frozen {'before' if before else 'after'}: {dict(told)}", end="")
    assert told["commit"] >= 3
