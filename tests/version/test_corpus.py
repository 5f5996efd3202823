"""The hash answers every labelled edit as its label says; how good the labels' scheme is, is counted."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.version.edits import Case, cases
from tests.version.projects import survey

CASES = cases()
VERDICT = re.compile(
    r"SAFE|NONDETERMINISTIC|(SAFE_ARGS_DIFFER|DIVERGES|RAISES|STATE_INCOMPATIBLE|SIDE_EFFECT) at [1-9]\d*"
)


def answer(case: Case, folder: Path) -> str:
    """Return whether the hash is the same after the edit."""
    hashes = []
    for name, make in (("before", case.before), ("after", case.after)):
        place = folder / name
        (definition,) = survey(place, make(place), also=(place / "site-packages",)).definitions
        # The function's name is part of it; a case that moves the function says so in its label.
        hashes.append(definition.sha256)
    return "same" if hashes[0] == hashes[1] else "other"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_hash_answers_as_labelled(case: Case, tmp_path: Path) -> None:
    assert answer(case, tmp_path) == case.hash


def test_the_corpus_is_what_it_claims() -> None:
    assert len(CASES) >= 50
    assert len({case.title for case in CASES}) == len(CASES)
    assert sum(bool(case.seen) for case in CASES) >= 20
    assert all(VERDICT.fullmatch(case.verdict) for case in CASES)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", case.seen) for case in CASES if case.seen)


def test_precision_and_recall_of_the_hash(tmp_path: Path) -> None:
    """Recall: of the edits that change behaviour, how many the hash sees. Precision: of those it sees, how many do."""
    found = Counter((case.behaviour, answer(case, tmp_path / str(number))) for number, case in enumerate(CASES))
    seen, missed = found["changed", "other"], found["changed", "same"]
    needless, passed = found["same", "other"], found["same", "same"]
    print(
        f"{len(CASES)} edits: recall {seen}/{seen + missed} = {seen / (seen + missed):.3f}, "
        f"precision {seen}/{seen + needless} = {seen / (seen + needless):.3f}, harmless and passed {passed}"
    )
    limits = [case.title for case in CASES if (case.behaviour, case.hash) == ("changed", "same")]
    assert missed == len(limits)
    assert all(title.endswith(": a documented limit") for title in limits)
