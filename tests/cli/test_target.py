"""Targets: what they name, and one line for everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli import target
from perdure.errors import UsageError
from tests.cli.conftest import FLOWS, Shell

FLOW = "import perdure\n@perdure.workflow\nasync def {0}() -> str:\n    return '{0}'\n"

WRONG = {
    "missing file": ("nowhere.py", "no such file: nowhere.py"),
    "a folder": ("./", "is a folder"),
    "missing module": ("no_such_module:flow", "no module 'no_such_module'"),
    "missing submodule": ("xml.nothing:flow", "no module 'xml.nothing'"),
    "no name at all": ("", "neither a module nor a file"),
    "not a name": ("two words", "neither a module nor a file"),
    "no such workflow": ("one.py:other", "one.py has no workflow 'other'; it has one"),
    "not a workflow": ("one.py:perdure", "perdure in one.py is not a workflow"),
    "no workflow": ("empty.py", "empty.py has no workflow"),
    "an error inside": ("broken.py", "broken.py cannot be imported: ZeroDivisionError: division by zero ("),
    "an error inside an import": ("imports.py", "imports.py cannot be imported: ZeroDivisionError"),
    "a missing import inside": (
        "lacks.py",
        "lacks.py cannot be imported: ModuleNotFoundError: No module named 'no_such'",
    ),
    "an import inside a module": ("lacks", "lacks cannot be imported: ModuleNotFoundError: No module named 'no_such'"),
    "not Python": ("syntax.py", "syntax.py cannot be imported: SyntaxError"),
    "a module that exits": ("exits.py", "exits.py cannot be imported: SystemExit: 0"),
    "text, not code": ("notes/text.txt", "not a Python file"),
    "a wrong decorator": ("double.py", "is decorated already"),
}

FILES = {
    "one.py": FLOW.format("one"),
    "empty.py": "x = 1\n",
    "broken.py": "def f():\n    return 1 / 0\nf()\n",
    "imports.py": "import broken\n",
    "lacks.py": "import no_such\n",
    "syntax.py": "def f(:\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "double.py": "import perdure\n@perdure.workflow\n@perdure.workflow\nasync def f(): ...\n",
    "notes/text.txt": "hello\n",
}


@pytest.fixture
def folder(shell: Shell) -> Path:
    for name, text in FILES.items():
        file = shell.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return shell.folder


@pytest.mark.parametrize("text,complaint", WRONG.values(), ids=WRONG)
def test_a_wrong_target_is_one_line_that_says_why(folder: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        target.load(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_in_a_target_names_file_and_line(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"broken\.py, line 2\)"):
        target.load("broken.py")


def test_a_file_with_several_workflows_must_say_which(shell: Shell) -> None:
    (shell.folder / "two.py").write_text(FLOW.format("first") + FLOW.format("second"))
    told = shell("run", "two.py")
    assert told.code == 2
    assert "first, second" in told.err
    assert shell("run", "two.py:second").value == "second"


def test_imported_workflows_count_only_where_there_are_no_own(shell: Shell) -> None:
    (shell.folder / "elsewhere.py").write_text(FLOW.format("far"))
    (shell.folder / "own.py").write_text("from elsewhere import far\n" + FLOW.format("near"))
    (shell.folder / "passes.py").write_text("from elsewhere import far\n")
    assert shell("run", "own.py").value == "near"
    assert shell("run", "passes.py").value == "far"


def test_a_file_may_import_its_neighbours_and_have_any_name(shell: Shell) -> None:
    (shell.folder / "sub").mkdir()
    (shell.folder / "sub" / "neighbour.py").write_text("word = 'hello'\n")
    body = "import perdure, neighbour\n@perdure.workflow\nasync def f() -> str:\n    return neighbour.word\n"
    for name in ("json.py", "with-dash.py", "plain.py"):
        (shell.folder / "sub" / name).write_text(body)
        assert shell("run", f"sub/{name}").value == "hello"


def test_a_workflow_is_found_by_its_own_name_too(shell: Shell) -> None:
    (shell.folder / "named.py").write_text(
        "import perdure\n@perdure.workflow(name='ship it')\nasync def f() -> int:\n    return 3\n"
    )
    assert shell("run", "named.py:ship it").value == 3


def test_a_module_is_found_from_the_current_folder(shell: Shell) -> None:
    (shell.folder / "pkg").mkdir()
    (shell.folder / "pkg" / "mod.py").write_text(FLOW.format("inner"))
    assert shell("run", "pkg.mod:inner").value == "inner"
    assert shell("run", "pkg.mod").value == "inner"


def test_a_file_in_a_package_is_the_module_of_its_full_name(shell: Shell) -> None:
    """Stored values name their classes, so a client that imports and a worker that names the file must agree."""
    package = shell.folder / "app" / "jobs"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "base.py").write_text("word = 'hello'\n")
    (package / "flow.py").write_text(
        "import perdure\nfrom .base import word\n@perdure.workflow\nasync def f() -> str:\n    return word + __name__\n"
    )
    assert shell("run", "app/jobs/flow.py").value == "helloapp.jobs.flow"
    assert target.load("app/jobs/flow.py").module is target.load("app.jobs.flow").module


def test_the_flows_of_these_tests_load() -> None:
    assert {workflow.name for workflow in target.load(str(FLOWS)).workflows} >= {"add", "fulfil"}
