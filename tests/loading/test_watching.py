"""Files swapped under a live worker are refused, never mixed with what is loaded; comments may change."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import sys
import time
from collections.abc import Callable, Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure.errors import SourceChangedOnDisk
from perdure.loading.watching import Registered, Watch, process_started, registered
from perdure.version.manifest import ManifestFile
from tests.version.projects import shop, survey, write

FILES = {
    **shop("from shop import core\n", core="RATE = 19\n\ndef pay():\n    return RATE\n", late="NAME = 'v1'\n"),
    "shop/sub/__init__.py": "", "shop/sub/deep.py": "NAME = 'v1'  # a comment\n", "space/member.py": "NAME = 'v1'\n",
}  # fmt: skip
Watcher = Callable[..., Watch]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return write(tmp_path / "app", FILES)


@pytest.fixture
def watch(app: Path) -> Iterator[Watcher]:
    """Register the project as a worker does, and watch; forget all of it at the end."""
    before, watches = set(sys.modules), []
    sys.path.insert(0, str(app))
    importlib.invalidate_caches()

    def register() -> Watch:
        taken = survey(app)
        modules = registered(taken.release.manifest, taken.definitions[0].parts)
        watches.append(Watch(taken.release.roots, modules, "order@1.3.0"))
        watches[-1].install()
        return watches[-1]

    yield register
    for one in watches:
        one.remove()
    sys.path.remove(str(app))
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("shop", "space", "plugin"):
            del sys.modules[name]


def name_in(module: str) -> Any:
    return importlib.import_module(module).NAME


def test_what_is_on_disk_as_it_was_registered_is_imported(watch: Watcher) -> None:
    watch()
    assert name_in("shop.late") == name_in("shop.sub.deep") == "v1"


def test_two_engines_of_one_process_watch_the_same_modules(watch: Watcher, app: Path) -> None:
    first, second = watch(), watch()
    assert importlib.util.find_spec("shop") is not None
    assert name_in("shop.late") == "v1"
    write(app, {"shop/sub/deep.py": "NAME = 'v2'\n"})
    with pytest.raises(SourceChangedOnDisk):
        importlib.import_module("shop.sub.deep")
    second.remove()
    with pytest.raises(SourceChangedOnDisk):
        importlib.import_module("shop.sub.deep")
    first.remove()
    assert name_in("shop.sub.deep") == "v2"


def test_a_module_that_was_changed_is_refused_in_words(watch: Watcher, app: Path) -> None:
    watch()
    importlib.import_module("shop")
    write(app, {"shop/core.py": "RATE = 7\n\ndef pay():\n    return RATE\n"})
    with pytest.raises(SourceChangedOnDisk) as raised:
        importlib.import_module("shop.core")
    assert (
        str(raised.value) == "shop.core changed on disk after this worker registered order@1.3.0; restart the worker."
    )
    assert "shop.core" not in sys.modules
    assert not isinstance(raised.value, ImportError)  # `except ImportError` must not take old for missing


def test_a_comment_or_layout_may_change(watch: Watcher, app: Path) -> None:
    watch()
    write(app, {"shop/core.py": "# new\nRATE = (19)\n\n\ndef pay():\n    # why\n    return RATE\n"})
    assert importlib.import_module("shop.core").pay() == 19


def test_a_module_that_was_not_registered_is_refused(watch: Watcher, app: Path) -> None:
    watch()
    write(app, {"shop/added.py": "NAME = 'v2'\n"})
    importlib.invalidate_caches()
    with pytest.raises(SourceChangedOnDisk, match=r"^shop\.added changed on disk"):
        importlib.import_module("shop.added")


def test_a_file_that_no_workflow_reaches_must_be_the_same_to_the_byte(watch: Watcher, app: Path) -> None:
    """Nobody looked into it, so nobody can say that only a comment has changed."""
    watch()
    write(app, {"shop/late.py": "NAME = 'v1'  # new\n"})
    with pytest.raises(SourceChangedOnDisk):
        importlib.import_module("shop.late")


def test_bytecode_that_was_kept_is_not_taken_for_the_source(watch: Watcher, app: Path) -> None:
    """Same size and time, other content: what tools that swap files can do."""
    file = app / "shop" / "core.py"
    py_compile.compile(str(file), doraise=True)
    status = file.stat()
    watch()
    file.write_text(file.read_text().replace("19", "99"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SourceChangedOnDisk):
        importlib.import_module("shop.core")


def test_a_module_that_is_reloaded_is_compared_too(watch: Watcher, app: Path) -> None:
    watch()
    module = importlib.import_module("shop.core")
    write(app, {"shop/core.py": "RATE = 7\n"})
    with pytest.raises(SourceChangedOnDisk):
        importlib.reload(module)
    assert module.pay() == 19


def test_other_code_is_not_looked_at(watch: Watcher, app: Path) -> None:
    one = watch()
    assert one.find_spec("json") is None
    write(app, {"plugin.py": "NAME = 'mine'\n"})
    importlib.invalidate_caches()
    assert name_in("plugin") == "mine"


def test_registered_modules_are_named_as_they_are_imported() -> None:
    paths = ("shop/__init__.py", "shop/a.py", "shop/b/__init__.py", "shop/b.py", "shop/b.txt")
    found = registered({path: ManifestFile(path, 1) for path in paths}, {"shop/a.py": "canonical"})
    assert set(found) == {"shop", "shop.a", "shop.b"}
    assert found["shop.b"].sha256 == "shop/b/__init__.py"  # a package hides a file of its name
    assert found["shop.a"] == Registered("shop/a.py", "canonical")


# -- what was imported before ---------------------------------------------------------------------------------------

LOADED = """
import functools
RATE = 19
def pay(x):
    return [x * 2 for x in range(3) if x in {"a", "b", "c"}]
def decorate(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner
@decorate
def wrapped():
    return 1
class Order:
    def total(self):
        return 1
    @staticmethod
    def fixed():
        return 2
    @property
    def seen(self):
        return 3
"""


@pytest.mark.parametrize(
    "old, new, changed",
    [
        ("x * 2", "x * 3", True),
        ("return 1\nclass", "return 5\nclass", True),
        ("        return 1\n", "        return 7\n", True),
        ("return 2", "return 8", True),
        ("def pay(x)", "# a comment\ndef pay(x)", False),
        ("RATE = 19", "RATE = 20", False),  # the limit of this check
    ],
)
def test_functions_that_were_loaded_are_compared(watch: Watcher, app: Path, old: str, new: str, changed: bool) -> None:
    write(app, {"shop/core.py": LOADED})
    importlib.invalidate_caches()
    module = importlib.import_module("shop.core")
    write(app, {"shop/core.py": LOADED.replace(old, new)})
    one = watch()
    modules = {"shop.core": module, "json": sys.modules["json"]}
    one.check_loaded(modules, time.time() + 3600)  # a file from before the process is what was loaded
    if changed:
        with pytest.raises(SourceChangedOnDisk, match=r"^shop\.core changed on disk"):
            one.check_loaded(modules, 0.0)
    else:
        one.check_loaded(modules, 0.0)


class Rewriting(Loader):
    """Somebody's own loader: it compiles something else than the file says."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        code = compile("def pay(): return 20", str(module.__file__), "exec")
        exec(code, vars(module))  # noqa: S102


def test_a_module_that_somebodys_own_loader_made_is_not_held_against_its_file(watch: Watcher, app: Path) -> None:
    """Pytest rewrites assertions: such a module is never like its file, however young that seems to be."""
    write(app, {"shop/core.py": LOADED})
    spec = importlib.util.spec_from_file_location("shop.core", app / "shop" / "core.py", loader=Rewriting())
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    Rewriting().exec_module(module)
    watch().check_loaded({"shop.core": module}, 0.0)


def test_a_loaded_module_whose_file_is_gone_or_broken_is_refused(watch: Watcher, app: Path) -> None:
    one = watch()
    module = importlib.import_module("shop.late")
    for damage in (lambda file: file.write_text("def ("), Path.unlink):
        damage(app / "shop" / "late.py")
        with pytest.raises(SourceChangedOnDisk):
            one.check_loaded({"shop.late": module}, 0.0)


def test_when_the_process_started_is_known() -> None:
    assert time.time() - 3600 * 24 < process_started() <= time.time()


def test_a_module_does_not_exist_before_it_is_compared(
    app: Path, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waits for another one's import is handed what ``sys.modules`` has, even when that import fails."""
    compare, existed = Watch.compare, {}

    def spy(self: Watch, module: str, data: bytes) -> None:
        existed[module] = module in sys.modules
        compare(self, module, data)

    monkeypatch.setattr(Watch, "compare", spy)
    watch()
    write(app, {"shop/late.py": "NAME = 'v2'\n"})
    with pytest.raises(SourceChangedOnDisk):
        name_in("shop.late")
    assert existed["shop.late"] is False
