"""Deployed first-party code is taken off the path; libraries, and this one, stay on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import perdure
from perdure.loading.paths import SNAPSHOT, cleaned
from perdure.loading.provided import Provided
from tests.process import Spawner
from tests.version.projects import write


def test_what_holds_first_party_code_goes_and_the_rest_stays(tmp_path: Path) -> None:
    app = write(tmp_path / "app", {"shop/__init__.py": ""})
    script = write(tmp_path / "scripts", {"flow.py": ""})
    known = write(tmp_path / "known", {"whatever.py": ""})
    libraries = write(tmp_path / "libs", {"other/__init__.py": "", "shop.txt": ""})
    site = write(tmp_path / "x" / "site-packages", {"shop/__init__.py": ""})
    entries = ["", ".", *map(str, (app, script, known, libraries, site))]
    assert cleaned(entries, [str(known)], ["shop.core", "flow"]) == [str(libraries), str(site)]


def test_the_library_itself_and_what_is_installed_stay() -> None:
    own, installed = str(Path(perdure.__file__).parents[1]), sysconfig.get_path("purelib")
    assert cleaned([own, installed], [own], ["perdure.demo", "pytest"]) == [own, installed]


def test_a_link_to_deployed_code_is_seen_through(tmp_path: Path) -> None:
    app = write(tmp_path / "release-2", {"x.py": ""})
    (tmp_path / "current").symlink_to(app)
    assert cleaned([str(tmp_path / "current")], [str(app)], []) == []


CHILD = """
import json, os, subprocess, sys
from pathlib import Path
from perdure.loading.paths import settle
tree, app = Path(sys.argv[1]), sys.argv[2]
settle(tree, [], path=None, roots=["shop"], version="order@1.3.0", elsewhere={"added": "1.4.0"}, distributions=[])
print(json.dumps([sys.path, os.environ["PYTHONPATH"]]))
code = sys.argv[3]
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(done.stdout.strip() or done.stderr.strip().splitlines()[-1])
"""


def run(spawn: Spawner, tmp_path: Path, code: str, **files: str) -> tuple[list[str], list[str], str]:
    """Settle in a process whose path leads to newer code, and run code in a child of it."""
    tree = write(tmp_path / "tree", {"shop/__init__.py": "NAME = 'v1'\n"})
    app = write(tmp_path / "app", {"shop/__init__.py": "NAME = 'v2'\n", "added.py": "", "shop/added.py": ""})
    libraries = write(tmp_path / "libs", {f"{name}.py": text for name, text in files.items()})
    own = str(Path(perdure.__file__).parents[1])
    path = os.pathsep.join([str(app), str(libraries), own])
    out = spawn.python(CHILD, str(tree), str(app), code, env={"PYTHONPATH": path}).finish().out.splitlines()
    entries, inherited = json.loads(out[0])
    assert str(app) not in entries
    assert entries[0] == str(tree)
    return entries, inherited.split(os.pathsep), out[1]


def test_a_program_that_a_step_starts_finds_the_old_code(tmp_path: Path, spawn: Spawner) -> None:
    _, inherited, said = run(spawn, tmp_path, "import shop; print(shop.NAME)")
    assert said == "v1"
    assert str(tmp_path / "app") not in inherited
    assert str(tmp_path / "libs") in inherited


def test_it_has_the_guard_too(tmp_path: Path, spawn: Spawner) -> None:
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'app')!r}); import added"
    _, _, said = run(spawn, tmp_path, code)
    assert said == "ModuleNotFoundError: 'added' is not in order@1.3.0's snapshot (it exists in 1.4.0)."


def test_its_own_sitecustomize_runs_as_if_nothing_stood_before_it(tmp_path: Path, spawn: Spawner) -> None:
    code = "import sys, sitecustomize; print(sys.DONE, any('inside' in entry for entry in sys.path))"
    _, _, said = run(spawn, tmp_path, code, sitecustomize="import sys\nsys.DONE = 'done'\n")
    assert said == "done False"


def test_the_guard_costs_a_child_no_import_of_the_library(tmp_path: Path, spawn: Spawner) -> None:
    _, _, said = run(spawn, tmp_path, "import sys; print('perdure' in sys.modules)")
    assert said == "False"


def test_a_python_that_is_no_child_of_a_host_is_left_alone(tmp_path: Path) -> None:
    inside = Path(perdure.__file__).parent / "loading" / "inside"
    environ = {name: value for name, value in os.environ.items() if name != SNAPSHOT} | {"PYTHONPATH": str(inside)}
    code = "import sys; print(type(sys.meta_path[0]).__name__, any('inside' in entry for entry in sys.path))"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "False"
    assert "Guard" not in done.stdout


def test_a_distribution_provides_what_it_lists() -> None:
    provided = Provided(["msgspec", "perdure-nowhere"])
    assert provided("msgspec")
    assert provided("msgspec.json")
    assert provided("msgspec._core")
    assert not provided("msgspec.nowhere")
    assert not provided("pytest")
