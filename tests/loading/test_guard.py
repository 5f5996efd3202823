"""The guard serves a version's own modules from its tree only, and refuses those of others. Nothing else is touched."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure.errors import NotInSnapshot, VersionError
from perdure.loading.guard import Guard, within
from tests.version.projects import write

TREE = {
    "shop/__init__.py": "NAME = 'v1'\n", "shop/late.py": "NAME = 'v1'\n", "ns/member.py": "NAME = 'v1'\n",
    "ns/inner/deep.py": "NAME = 'v1'\n", "single.py": "NAME = 'v1'\n", "acme/billing/__init__.py": "NAME = 'v1'\n",
}  # fmt: skip
ROOTS = ("shop", "ns", "single", "acme.billing")
ELSEWHERE = {
    "shop": "1.4.0",
    "added": "1.4.0",
    "shop.added": "1.4.0",
    "acme.other": "1.4.0",
    "acme": "2.0.0",
    "csv": "9",
}
OURS = {"shop", "ns", "single", "added", "acme", "brought"}

Install = Callable[..., Guard]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Put a guard in place for a tree; take it and what was imported through it away at the end."""
    before, path, guards = set(sys.modules), list(sys.path), []

    def put(provided: Callable[[str], bool] = lambda _name: False) -> Guard:
        tree = write(tmp_path / "tree", TREE)
        sys.path.insert(0, str(tree))
        guard = Guard(
            str(tree), ROOTS, version="order@1.3.0", elsewhere=ELSEWHERE, provided=provided,
            refuse=lambda name, text: NotInSnapshot(text, name=name),
        )  # fmt: skip
        guards.append(guard)
        guard.install()
        return guard

    yield put
    for guard in guards:
        guard.remove()
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in OURS:
            del sys.modules[name]
    importlib.invalidate_caches()


def name_in(module: str) -> Any:
    return importlib.import_module(module).NAME


@pytest.mark.parametrize("module", ["shop", "shop.late", "ns.member", "ns.inner.deep", "single", "acme.billing"])
def test_own_modules_come_from_the_tree_whatever_is_first_on_the_path(
    install: Install, tmp_path: Path, module: str
) -> None:
    newer = write(tmp_path / "v2", dict.fromkeys(TREE, "NAME = 'v2'\n"))
    install()
    sys.path.insert(0, str(newer))
    assert name_in(module) == "v1"


def test_what_was_imported_before_from_elsewhere_is_forgotten(install: Install, tmp_path: Path) -> None:
    sys.path.insert(0, str(write(tmp_path / "v2", {"shop/__init__.py": "NAME = 'v2'\n", "added.py": "NAME = 'v2'\n"})))
    assert (name_in("shop"), name_in("added")) == ("v2", "v2")
    install()
    assert name_in("shop") == "v1"
    with pytest.raises(NotInSnapshot):
        importlib.import_module("added")


def test_modules_of_other_versions_are_refused_in_words(install: Install, tmp_path: Path) -> None:
    sys.path.insert(0, str(write(tmp_path / "v2", {"added.py": "", "shop/added.py": ""})))
    install()
    with pytest.raises(NotInSnapshot) as raised:
        importlib.import_module("shop.added")
    assert str(raised.value) == "'shop.added' is not in order@1.3.0's snapshot (it exists in 1.4.0)."
    assert raised.value.name == "shop.added"
    with pytest.raises(NotInSnapshot, match=r"'added' is not in order@1\.3\.0's snapshot \(it exists in 1\.4\.0\)\."):
        importlib.import_module("added")


def test_to_old_code_it_is_as_if_the_module_was_never_there(install: Install) -> None:
    """Code that can do without a module goes on doing without it, however it asks."""
    install()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("added")
    with pytest.raises(ImportError, match="cannot import name 'added'"):
        exec("from shop import added")  # noqa: S102 - what old code may say
    assert importlib.util.find_spec("shop.local_settings") is None
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'shop\.local_settings'$"):
        importlib.import_module("shop.local_settings")


def test_the_error_survives_copying(install: Install) -> None:
    error = NotInSnapshot("'a' is not there.", name="a")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own
        assert (type(twin), str(twin), twin.name) == (NotInSnapshot, "'a' is not there.", "a")
    assert isinstance(error, VersionError)


class Editable:
    """As an editable installation: it gives modules by their name, whatever the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = self.folder / (fullname.replace(".", "/") + ".py")
        return importlib.util.spec_from_file_location(fullname, file) if file.is_file() else None


def test_a_finder_that_offers_a_module_of_ours_which_is_not_in_the_tree_is_not_asked(
    install: Install, tmp_path: Path
) -> None:
    install()
    editable = Editable(write(tmp_path / "v2", {"shop/unheard.py": "NAME = 'v2'\n"}))
    sys.meta_path.append(editable)
    try:
        with pytest.raises(NotInSnapshot, match=r"^'shop\.unheard' is not in order@1\.3\.0's snapshot\.$"):
            importlib.import_module("shop.unheard")
    finally:
        sys.meta_path.remove(editable)


def test_a_name_that_a_recorded_distribution_provides_is_not_blocked(install: Install, tmp_path: Path) -> None:
    sys.path.insert(0, str(write(tmp_path / "site", {"added.py": "NAME = 'dist'\n"})))
    install(lambda name: name == "added")
    assert name_in("added") == "dist"


def test_a_namespace_shared_with_a_recorded_distribution(install: Install, tmp_path: Path) -> None:
    sys.path.append(str(write(tmp_path / "site", {"ns/brought/__init__.py": "NAME = 'dist'\n", "ns/extra.py": ""})))
    install(lambda name: name == "ns.brought")
    assert (name_in("ns.member"), name_in("ns.brought")) == ("v1", "dist")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ns.extra")


def test_the_packages_above_our_own_are_not_blocked(install: Install) -> None:
    """``acme`` is first-party in another version; here only ``acme.billing`` is, and needs it."""
    install()
    assert name_in("acme.billing") == "v1"
    with pytest.raises(NotInSnapshot):
        importlib.import_module("acme.other")


def test_the_standard_library_is_never_refused(install: Install) -> None:
    """Another version may have a module of the same name."""
    install()
    del sys.modules["csv"]
    assert importlib.import_module("csv").reader


def test_nothing_else_is_its_business(install: Install) -> None:
    guard = install()
    assert guard.find_spec("msgspec") is None
    assert guard.find_spec("perdure.api") is None


def test_resources_of_a_namespace_package_are_those_of_the_tree(install: Install, tmp_path: Path) -> None:
    sys.path.insert(0, str(write(tmp_path / "v2", {"ns/extra.txt": "v2"})))
    install()
    files = [path.name for path in importlib.resources.files("ns").iterdir()]
    assert "member.py" in files
    assert "extra.txt" not in files


def test_the_guard_that_is_installed_again_is_first_again(install: Install) -> None:
    guard = install()
    other = Editable(Path())
    sys.meta_path.insert(0, other)
    try:
        guard.install()
        assert sys.meta_path[0] is guard
        assert sys.meta_path.count(guard) == 1
    finally:
        sys.meta_path.remove(other)


def test_packages_are_found_by_whole_parts_of_a_name() -> None:
    assert within("shop.core.pay", {"shop.core"}) == "shop.core"
    assert within("shopping", {"shop"}) == ""
    assert within("shop", {"shop.core"}) == ""


def test_modules_are_ordinary_modules(install: Install) -> None:
    install()
    module = importlib.import_module("shop.late")
    assert isinstance(module, ModuleType)
    assert module.__spec__ is not None
    assert module.__spec__.has_location
    assert importlib.reload(module) is module
