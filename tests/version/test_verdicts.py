"""The replay check answers the labelled edits as their labels say."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.process import Spawner
from tests.version.edits import Case, cases
from tests.version.verdicts import ALL

PROGRAM = Path(__file__).with_name("verdicts.py")
CASES = {case.title: case for case in cases()}
SAMPLE = (
    "a step is put between two steps",
    "an argument has another value",
    "a stored type gets a required field",
    "a helper is renamed, and its callers with it",
)


class Bench:
    """Records the runs of projects before an edit, each once, and replays them after it."""

    def __init__(self, folder: Path, spawn: Spawner) -> None:
        self._folder = folder
        self._spawn = spawn
        self._recorded: dict[str, Path] = {}

    def verdict(self, case: Case) -> str:
        """Return what a check says, in the words of the labels."""
        place = self._folder / f"case-{len(list(self._folder.iterdir()))}"
        history = self._history(case, place / "before")
        case.after(place / "after")
        _hasten(case, place / "after")
        kind, at = self._run(place / "after", "replay", str(history), case.entry).split()
        if kind in ("RAISES", "SIDE_EFFECT"):
            # A check names the operation whose result came last, a label the one that was due.
            at = "1" if at == "start" else str(int(at) + 1)
        return kind if kind in ("SAFE", "NONDETERMINISTIC") else f"{kind} at {at}"

    def _history(self, case: Case, place: Path) -> Path:
        key = repr((case.setup, case.recorded))
        if key not in self._recorded:
            case.before(place)
            _hasten(case, place)
            self._recorded[key] = place / "history.jsonl"
            self._run(place, "record", str(self._recorded[key]), str(case.recorded))
        return self._recorded[key]

    def _run(self, place: Path, *words: str) -> str:
        said = self._spawn(sys.executable, PROGRAM, *words, folder=place).finish(60)
        assert said.code == 0, said.err
        return said.out


def _hasten(case: Case, place: Path) -> None:
    if case.recorded == ALL:
        flow = place / "shop" / "flow.py"
        flow.write_text(flow.read_text().replace('"1h"', '"10ms"').replace('"2h"', '"20ms"'))


@pytest.mark.parametrize("title", SAMPLE)
def test_a_verdict_is_as_labelled(title: str, tmp_path: Path, spawn: Spawner) -> None:
    assert Bench(tmp_path, spawn).verdict(CASES[title]) == CASES[title].verdict


@pytest.mark.nightly
def test_every_verdict_is_as_labelled(tmp_path: Path, spawn: Spawner) -> None:
    wrong: list[str] = []
    answers: Counter[tuple[bool, bool]] = Counter()
    bench = Bench(tmp_path, spawn)
    for case in CASES.values():
        found = bench.verdict(case)
        answers[case.verdict == "SAFE", found == "SAFE"] += 1
        if found != case.verdict:
            wrong.append(f"{case.title}: labelled {case.verdict}, found {found}")
    print(f"{len(CASES)} verdicts, {len(wrong)} not as labelled; unsafe and found {answers[False, False]}, unsafe and "
          f"missed {answers[False, True]}, safe and refused {answers[True, False]}")  # fmt: skip
    assert not wrong, "\n".join(wrong)
