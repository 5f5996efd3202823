"""The guard: in a process that runs an old version, its first-party modules come from its own unpacked tree only.

INV-1  A name of this version is served from the tree, or not at all: whatever the path, an editable installation or a
       namespace package would give.
INV-2  A name that is first-party in other versions is refused, unless a distribution that was recorded for this version
       provides it. Everything else is none of its business.
INV-3  To the code it is as if what is not there had never been: what is raised is a `ModuleNotFoundError`.

Child processes load this file by its path (see `inside`), so it imports the standard library only.
"""

from __future__ import annotations

import os
import py_compile
import sys
from contextlib import suppress
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import ModuleType


class KeepingLoader(SourceFileLoader):
    """Loads a module of a tree and keeps its bytecode there, even where that is switched off: the tree is private."""

    def get_code(self, fullname: str) -> Any:
        """Return the module's code."""
        code = super().get_code(fullname)
        if sys.dont_write_bytecode and not os.path.exists(cache_from_source(self.path)):
            with suppress(OSError):  # a full disk costs time at the next start, nothing else
                py_compile.compile(self.path, doraise=True)
        return code


class NamespacePath(list[str]):
    """The one folder of a namespace package.

    Python's own looks for more folders whenever the path changes; `importlib.resources` knows it by its name.
    """

    def __repr__(self) -> str:
        return f"NamespacePath({super().__repr__()})"


class Guard:
    """Finder of modules, to be the first of ``sys.meta_path``.

    Args:
        tree: where the version is unpacked.
        roots: names of its first-party packages and modules.
        version: what it is, such as ``order@1.3.0``, for messages.
        elsewhere: names of first-party packages and modules of other versions, with a version that has each.
        provided: whether a distribution that was recorded for this version provides a module.
        refuse: makes the error for a module, from its name and the text.
    """

    def __init__(
        self, tree: str, roots: Collection[str], *, version: str, elsewhere: Mapping[str, str],
        provided: Callable[[str], bool], refuse: Callable[[str, str], ImportError],
    ) -> None:  # fmt: skip
        self._tree = tree
        self._roots = frozenset(roots)
        self._version = version
        self._elsewhere = {
            name: where for name, where in elsewhere.items()
            if name in self._roots or name.partition(".")[0] not in sys.stdlib_module_names
        }  # fmt: skip
        self._tops = {name.partition(".")[0] for name in (*self._roots, *self._elsewhere)}
        self._provided = provided
        self._refuse = refuse
        self._finders: dict[str, FileFinder] = {}

    def install(self) -> None:
        """Become the first finder, and forget modules of those names that came from elsewhere before."""
        self.remove()
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if self._is_stranger(name, module):
                del sys.modules[name]

    def remove(self) -> None:
        """Be no finder any more."""
        while self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; None where that is not for the guard to say.

        Raises:
            ImportError: it is not part of this version.
        """
        if fullname.partition(".")[0] not in self._tops:
            return None
        if within(fullname, self._roots):
            found = self._inside(fullname)
            return self._absent(fullname, path, target) if found is None else found
        if self._is_foreign(fullname):
            raise self._refused(fullname)
        return None

    def _inside(self, fullname: str) -> ModuleSpec | None:
        folder = os.path.join(self._tree, *fullname.split(".")[:-1])
        finder = self._finders.get(folder)
        if finder is None:
            finder = self._finders[folder] = FileFinder(folder, (KeepingLoader, [".py"]))
        spec = finder.find_spec(fullname)
        if spec is not None and spec.loader is None:
            spec.submodule_search_locations = NamespacePath(spec.submodule_search_locations or ())
        return spec

    def _absent(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:  # fmt: skip
        """Look for a name of ours that is not in the tree: it must not come from where it should not."""
        if self._provided(fullname):  # a namespace shared with an installed distribution
            inner = fullname.split(".")[:-1]
            return PathFinder.find_spec(fullname, [os.path.join(entry, *inner) for entry in sys.path])
        if fullname in self._elsewhere or self._is_offered(fullname, path, target):
            raise self._refused(fullname)
        return None

    def _is_offered(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> bool:
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        return any(finder.find_spec(fullname, path, target) is not None for finder in finders)

    def _refused(self, fullname: str) -> ImportError:
        where = self._elsewhere.get(fullname) or self._elsewhere.get(within(fullname, self._elsewhere))
        known = f" (it exists in {where})" if where and not self._is_ours_only(fullname) else ""
        return self._refuse(fullname, f"{fullname!r} is not in {self._version}'s snapshot{known}.")

    def _is_ours_only(self, fullname: str) -> bool:
        """Whether nothing is known of a name but that its package is first-party in several versions."""
        return fullname not in self._elsewhere and bool(within(fullname, self._roots))

    def _is_stranger(self, name: str, module: ModuleType) -> bool:
        if name.partition(".")[0] not in self._tops:
            return False
        if within(name, self._roots):
            place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
            return not str(place).startswith(self._tree + os.sep)
        return self._is_foreign(name)

    def _is_foreign(self, name: str) -> bool:
        if not within(name, self._elsewhere) or any(root.startswith(f"{name}.") for root in self._roots):
            return False  # the packages above our own are not ours, but we need them
        return not self._provided(name)


def within(name: str, packages: Collection[str]) -> str:
    """Return which of some packages a module is, or is part of; empty for none."""
    while name and name not in packages:
        name = name.rpartition(".")[0]
    return name
