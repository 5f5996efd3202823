"""Every example in the pages is code that compiles, and runs."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, is_session, pages, program, replaced
from tests.docs.session import Session, _commands, _shows
from tests.house.tree import ROOT
from tests.process import Spawner

PYTHON = [block for page in pages() for block in blocks(page) if block.language == "python"]
NARRATIVE = [page for page in pages() if is_session(page)]
PROGRAMS = [page for page in pages() if page not in NARRATIVE and page != ROOT / "README.md" and program(page)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_an_example_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_the_examples_of_a_page_run(spawn: Spawner, tmp_path: Path, page: Path) -> None:
    source = tmp_path / "page.py"
    source.write_text(program(page), "utf-8")
    result = spawn(sys.executable, "-W", "error", source, folder=tmp_path).finish()
    assert result.code == 0, result.err


@pytest.mark.timeout(480)
@pytest.mark.parametrize("page", NARRATIVE, ids=name_of)
def test_what_a_page_types_gives_what_it_shows(spawn: Spawner, tmp_path: Path, page: Path) -> None:
    Session(spawn, tmp_path).play(page)


def test_there_are_pages_with_programs_and_with_sessions() -> None:
    assert ROOT / "docs" / "tutorial.md" in NARRATIVE
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_names_its_language(page: Path) -> None:
    known = {"python", "console", "sql", "text", "mermaid", "json"}
    assert not [f"{block}: {block.language or 'none'}" for block in blocks(page) if block.language not in known]


# ------------------------------------------------------------------------------------------------- the reader has teeth


def test_a_function_is_replaced_with_its_decorators() -> None:
    source = "x = 1\n\n@deco\n@other\nasync def f():\n    pass\n\ny = 2\n"
    assert replaced(source, "f", "def f(): ...\n") == "x = 1\n\ndef f(): ...\n\ny = 2\n"
    with pytest.raises(LookupError):
        replaced(source, "g", "")


def test_a_console_block_is_commands_and_what_they_show() -> None:
    assert _commands("$ one &\na\n\n$ two\n") == [("one &", ["a"]), ("two", [])]


@pytest.mark.parametrize(
    "printed,line,shown",
    [
        ("a   b\nc", "a b", True),
        ("a b", "a c", False),
        ("3  10:00  step", "3 ... step", True),
        ("3  10:00\nstep", "3 ... step", False),
        (json.dumps("x"), '"x"', True),
    ],
)
def test_output_is_compared_line_by_line(printed: str, line: str, shown: bool) -> None:
    assert _shows(printed, line) is shown


def test_a_page_is_read_with_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- not run -->\n```python\na\n```\ntext\n```python\n# x.py: f\nb\n```\n```text\nc\n```\n")
    first, second, third = blocks(page)
    assert (first.run, first.file, first.line) == (False, None, 2)
    assert (second.run, second.file) == (True, ("x.py", "f"))
    assert third.language == "text"
    assert program(page) == "# x.py: f\nb\n"
