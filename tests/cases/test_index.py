"""Every known complaint is answered by a test, or says what it waits for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT

INDEX = ROOT / "docs" / "cases.md"
IDS = Path(__file__).with_name("ids.txt")
COUNT = 119
ROW = re.compile(r"\| ([A-Z]+-\d+) \| (.+?) \| (.*?) \| (.*?) \|")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
WAITS_FOR = (
    "part 3", "signals", "children", "schedules", "retention", "HTTP", "health", "a second release", "metrics",
    "acting on many at once", "a command that starts several worker processes",
)  # fmt: skip


def rows(text: str) -> list[tuple[str, str, str, str]]:
    return [match.groups() for line in text.splitlines() if (match := ROW.fullmatch(line))]  # type: ignore[misc]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")}


def gaps(text: str, known: list[tuple[str, str]]) -> list[str]:
    """List what is wrong with an index: ids that are missing or made up, and rows that say nothing."""
    found = rows(text)
    wrong = [f"not in the index: {each}" for each in known if each not in [(row[0], row[1]) for row in found]]
    wrong += [f"not a known case: {row[0]}" for row in found if (row[0], row[1]) not in known]
    wrong += [f"twice: {row[0]}" for n, row in enumerate(found) if row[0] in [each[0] for each in found[:n]]]
    for case, _, tests, missing in found:
        if not NAMED.findall(tests) and not missing:
            wrong.append(f"neither a test nor a reason: {case}")
        if missing and not any(feature in missing for feature in WAITS_FOR):
            wrong.append(f"no such feature: {case} waits for {missing!r}")
    return wrong


def known_cases() -> list[tuple[str, str]]:
    lines = IDS.read_text("utf-8").splitlines()
    return [(case, title.replace("|", "/")) for case, _, title in (line.partition("\t") for line in lines)]


def test_every_case_is_in_the_index() -> None:
    known = known_cases()
    assert len(known) == COUNT
    assert gaps(INDEX.read_text("utf-8"), known) == []


def test_every_test_the_index_names_exists() -> None:
    named = NAMED.findall(INDEX.read_text("utf-8"))
    assert named
    assert [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)] == []


def test_every_test_of_a_case_is_in_the_row_of_its_case() -> None:
    by_case = {row[0]: set(NAMED.findall(row[2])) for row in rows(INDEX.read_text("utf-8"))}
    lost = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        relative = path.relative_to(ROOT).as_posix()
        for name in sorted(names_in(path)):
            match = re.match(r"test_case_([a-z]+)_(\d+)", name)
            if match and (relative, name) not in by_case.get(f"{match[1].upper()}-{match[2]}", set()):
                lost.append(f"{relative}::{name}")
    assert lost == []


@pytest.mark.parametrize(
    "line,complaint",
    [
        ("| REC-99 | Made up |  | signals |", "not a known case: REC-99"),
        ("| REC-03 | A title |  |  |", "neither a test nor a reason: REC-03"),
        ("| REC-03 | A title |  | better weather |", "no such feature: REC-03 waits for 'better weather'"),
        ("", "not in the index: ('REC-03', 'A title')"),
        ("| REC-03 | A title |  | signals |\n| REC-03 | A title |  | signals |", "twice: REC-03"),
    ],
)
def test_a_gap_is_found(line: str, complaint: str) -> None:
    assert complaint in gaps(line, [("REC-03", "A title")])
