"""Where a workflow's source is: modules, scripts, and what has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perdure.errors import NoSource
from perdure.version.locate import Entry, entry_of, find, finder, is_installed
from tests.version.projects import write


def loaded(name: str, file: Path | None, **attributes: object) -> dict[str, ModuleType]:
    module = ModuleType(name)
    if file is not None:
        module.__file__ = str(file)
    vars(module).update(attributes)
    return {name: module}


def function(module: str) -> object:
    def order() -> None: ...

    order.__module__ = module
    order.__qualname__ = "order"
    return order


def test_a_module_goes_by_its_name(tmp_path: Path) -> None:
    file = write(tmp_path, {"shop/flow.py": ""}) / "shop" / "flow.py"
    assert entry_of(function("shop.flow"), "order", loaded("shop.flow", file)) == Entry("shop.flow", "order", file)
    assert str(Entry("shop.flow", "order", file)) == "shop.flow:order"


def test_a_script_goes_by_the_name_of_its_file(tmp_path: Path) -> None:
    for name in ("flow.py", "my-flow.py", "flow"):
        file = write(tmp_path, {name: ""}) / name
        entry = entry_of(function("__main__"), "order", loaded("__main__", file, __spec__=None))
        assert entry.module == Path(name).stem


def test_a_module_that_was_run_goes_by_its_own_name(tmp_path: Path) -> None:
    """As with ``python -m shop.flow``; in a real process, since `runpy` decides what is where."""
    text = "from perdure.version.locate import entry_of\ndef order(): ...\nprint(entry_of(order, 'order'))\n"
    write(tmp_path, {"shop/__init__.py": "", "shop/flow.py": text, "shop/__main__.py": text, "flow.py": text})
    says = []
    for arguments in (["-m", "shop.flow"], ["-m", "shop"], ["flow.py"]):
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        says.append(done.stdout.strip())
    assert says == ["shop.flow:order", "shop.__main__:order", "flow:order"]


@pytest.mark.parametrize(
    "name,why",
    [
        (None, "notebook or frozen application"),
        ("missing.py", "notebook or frozen application"),
        ("flow.pyc", "only .pyc is there"),
        ("flow.so", "only .so is there"),
    ],
)
def test_without_source_there_is_no_version(tmp_path: Path, name: str | None, why: str) -> None:
    if name is not None and name != "missing.py":
        write(tmp_path, {name: ""})
    with pytest.raises(NoSource) as raised:
        entry_of(function("__main__"), "order", loaded("__main__", None if name is None else tmp_path / name))
    assert str(raised.value) == f"no source for module __main__ ({why}); order cannot be bound to a version."


def test_a_module_that_was_never_loaded_has_no_source() -> None:
    with pytest.raises(NoSource):
        entry_of(function("gone"), "order", {})


def test_the_standard_library_and_installed_code_are_told_apart() -> None:
    assert find("json") is not None
    assert find("json").installed  # type: ignore[union-attr]
    assert find("pytest").installed  # type: ignore[union-attr]
    assert find("sys") is None
    assert find("no_such_module_anywhere") is None
    assert not is_installed(Path(__file__))


def test_this_librarys_own_source_is_found_wherever_it_is() -> None:
    root = find("perdure.demo")
    assert root is not None
    assert root.folders[0].parts[-2:] == ("perdure", "demo")
    assert root.base == Path(*root.folders[0].parts[:-2])


def test_of_a_namespace_the_projects_part_is_first_party(tmp_path: Path) -> None:
    write(tmp_path, {"app/space/a.py": "", "site-packages/space/b.py": ""})
    root = finder(tmp_path / "site-packages", tmp_path / "app")("space")
    assert root is not None
    assert (root.folders, root.installed) == ((tmp_path / "app" / "space",), False)
