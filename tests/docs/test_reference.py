"""The reference says what the code says."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest

import perdure
from perdure import errors
from perdure.model.status import TRANSITIONS, EventType, Status
from scripts import python_reference as reference
from tests.house.tree import ROOT

EVENTS = ROOT / "docs" / "reference" / "events-and-states.md"
LIFE_CYCLE = ROOT / "docs" / "explanation" / "life-cycle.md"
ARROW = re.compile(r"^ {4}(\S+) --> (\S+): (\S+)$", re.MULTILINE)


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_written_from_the_code_is_current(name: str) -> None:
    written = (reference.FOLDER / name).read_text("utf-8")
    assert written == reference.PAGES[name](), "run `make reference`"


def test_every_exported_name_has_an_entry() -> None:
    listed = {name for names in reference.GROUPS.values() for name in names}
    assert listed | set(errors.__all__) - {"BlobsMissing", "StoreConflict"} == set(perdure.__all__)


def test_every_error_has_a_line_that_says_what_to_do() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+?) \| (.*?) \|$", reference.errors_page(), re.MULTILINE)
    assert {name for _, name, _, _ in rows} == set(errors.__all__)
    assert all(meaning and advice for _, _, meaning, advice in rows)
    assert {code for code, _, _, _ in rows} >= set(reference.ADVICE)


def test_no_advice_names_a_command_that_is_not_there() -> None:
    folder = ROOT / "src" / "perdure" / "cli" / "commands"
    commands = {path.stem for path in folder.glob("*.py")}
    named = set(re.findall(r"`perdure (\w+)", reference.errors_page()))
    assert named
    assert named <= commands


@pytest.mark.parametrize("heading,kind", [("States", Status), ("Events", EventType)])
def test_every_state_and_event_is_listed_in_order(heading: str, kind: type[StrEnum]) -> None:
    section = EVENTS.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (`\w+`) \|", section, re.MULTILINE) == [f"`{member.value}`" for member in kind]


def test_the_diagram_shows_exactly_the_legal_transitions() -> None:
    drawn = ARROW.findall(LIFE_CYCLE.read_text("utf-8"))
    legal = {(before or "[*]", after, event) for (before, event), after in TRANSITIONS.items()}
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {tuple(map(str, arrow)) for arrow in legal}
