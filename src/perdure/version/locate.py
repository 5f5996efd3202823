"""Where first-party source is on this machine, without importing it.

First-party is what the project names, or the top-level package of a workflow and every top-level name whose source is
neither the standard library's nor installed in site-packages. This library itself is a dependency, never first-party,
unless a part of it is named.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from perdure.errors import NoSource

_ENGINE: Final = __name__.partition(".")[0]
_INSTALLED_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})


class Root(NamedTuple):
    """Source of one top-level name, or of a package inside one.

    Attributes:
        name: the module's name, such as ``shop``.
        folders: the package's folders; more than one for a namespace package; none for a single file.
        file: the file, where it is a module of its own.
        installed: whether it is in site-packages or the standard library.
    """

    name: str
    folders: tuple[Path, ...] = ()
    file: Path | None = None
    installed: bool = False

    @property
    def base(self) -> Path:
        """The folder that names in it are relative to, and beside which other roots may lie."""
        return self.file.parent if self.file is not None else self.folders[0].parents[self.name.count(".")]


Finder = Callable[[str], Root | None]
"""Gives the source of a module's top-level name, or of a package; None where there is none in files."""


class Entry(NamedTuple):
    """Where a workflow's function is: logical module, name in it, and the file."""

    module: str
    qualname: str
    file: Path

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


def find(name: str) -> Root | None:
    """Return the source of a top-level name or of a package in one, as this process would import it."""
    return _found(name, None)


def finder(*folders: Path) -> Finder:
    """Return a finder that looks in these folders only."""
    path = [str(folder) for folder in folders]
    return lambda name: _found(name, path)


def _found(name: str, path: list[str] | None) -> Root | None:
    top, *inner = name.split(".")
    spec = _spec(top, path)
    if spec is None:
        return None
    origin = spec.origin
    if origin is not None and origin.endswith(".py") and spec.submodule_search_locations is None:
        file = Path(origin)
        return None if inner or not file.is_file() else Root(top, file=file, installed=is_installed(file))
    folders = tuple(Path(folder).joinpath(*inner) for folder in spec.submodule_search_locations or ())
    folders = tuple(folder for folder in folders if folder.is_dir())
    # Of a namespace package, what the project has beside what is installed is the project's.
    own = tuple(folder for folder in folders if not is_installed(folder))
    return Root(name, own or folders, installed=not own) if folders else None


def _spec(top: str, path: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    if path is not None:
        return importlib.machinery.PathFinder.find_spec(top, path)
    try:
        # Top-level names are found by asking the finders; only inner ones would import their parents.
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return importlib.machinery.PathFinder.find_spec(top)


def is_installed(path: Path) -> bool:
    """Whether a file is the standard library's or came with an installed distribution."""
    real = path.resolve()
    return bool(_INSTALLED_FOLDERS.intersection(real.parts)) or any(
        real.is_relative_to(folder) for folder in _installed_folders()
    )


@cache
def _installed_folders() -> tuple[Path, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    return tuple(Path(folder).resolve() for folder in folders if folder)


def is_engine(name: str) -> bool:
    """Whether a module belongs to this library."""
    return name.partition(".")[0] == _ENGINE


def root_of_entry(entry: Entry, find: Finder, packages: tuple[str, ...] | None) -> Root:
    """Return the root that holds a workflow's module.

    Raises:
        NoSource: it is not there.
    """
    for package in packages or ():
        if f"{entry.module}.".startswith(f"{package}.") and (root := find(package)) is not None:
            return root
    top = entry.module.partition(".")[0]
    if top == entry.module and entry.file.stem != "__init__":
        return Root(top, file=entry.file, installed=is_installed(entry.file))
    # The engine's own packages are versioned one by one, as if each was a project.
    name = ".".join(entry.module.split(".")[:2]) if is_engine(top) else top
    root = find(name)
    if root is None:
        raise no_source(entry.module, entry.qualname)
    return root


def entry_of(function: Any, workflow: str, modules: Mapping[str, ModuleType] | None = None) -> Entry:
    """Return where a workflow's function is. A script run as ``__main__`` goes by the name of its file.

    Args:
        function: the workflow's function, as it was decorated.
        workflow: name of the workflow, for the message.
        modules: loaded modules by name; those of this process by default.

    Raises:
        NoSource: its module has no source file.
    """
    name: str = function.__module__
    module = (sys.modules if modules is None else modules).get(name)
    file = Path(getattr(module, "__file__", None) or "")
    if not file.is_file():
        raise no_source(name, workflow)
    if file.suffix not in ("", ".py"):
        raise no_source(name, workflow, f"only {file.suffix} is there")
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = file.stem if spec is None else spec.name
        if name.rpartition(".")[2] == "__main__" and "." not in name:
            raise no_source(name, workflow)
    return Entry(name, function.__qualname__, file)


def no_source(module: str, workflow: str, why: str = "notebook or frozen application") -> NoSource:
    """Return the error for a module without source."""
    return NoSource(f"no source for module {module} ({why}); {workflow} cannot be bound to a version.")


def neighbours(base: Path) -> Iterator[str]:
    """Give the top-level modules and packages that lie in a folder."""
    for path in sorted(base.iterdir()):
        if path.suffix == ".py" and path.stem.isidentifier() and path.is_file():
            yield path.stem
        elif path.name.isidentifier() and (path / "__init__.py").is_file():
            yield path.name
