"""The tests bite: each small fault planted in a copy of the engine turns a named test red."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import perdure
from tests.process import Finished, Spawner
from tests.teeth.mutants import MUTANTS, Mutant

PACKAGE = Path(perdure.__file__).parent
ROOT = Path(__file__).parents[2]
FEWEST = 20


def run(spawn: Spawner, source: Path, *tests: str) -> Finished:
    """Run tests against the package below ``source``."""
    # How a failure is shown is of no interest, and to rewrite the tests for it takes more than half of the time.
    options = ("-q", "-x", "--assert=plain", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
    path = ":".join([str(source), str(ROOT)])
    child = spawn(sys.executable, "-m", "pytest", *options, *tests, env={"PYTHONPATH": path}, folder=ROOT)
    return child.finish(80)


def plant(mutant: Mutant, folder: Path) -> None:
    """Copy the package and change one place of it."""
    shutil.copytree(PACKAGE, folder / "perdure")
    file = folder / "perdure" / mutant.file
    text = file.read_text("utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} has {text.count(mutant.old)} times: {mutant.old}"
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_fault_is_found(mutant: Mutant, spawn: Spawner, tmp_path: Path) -> None:
    plant(mutant, tmp_path)
    finished = run(spawn, tmp_path, mutant.test)
    assert finished.code == 1, f"nobody noticed: {mutant.name}\n{finished.out}\n{finished.err}"


def test_without_a_fault_the_same_tests_pass_on_a_copy(spawn: Spawner, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "perdure")
    check = f"import perdure; assert perdure.__file__.startswith({str(tmp_path)!r}), perdure.__file__"
    assert spawn(sys.executable, "-c", check, env={"PYTHONPATH": str(tmp_path)}).finish().code == 0
    finished = run(spawn, tmp_path, *dict.fromkeys(mutant.test for mutant in MUTANTS))
    assert finished.code == 0, finished.out


def test_there_are_enough_faults_and_each_is_another() -> None:
    assert len(MUTANTS) >= FEWEST
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
