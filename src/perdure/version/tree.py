"""First-party files as they lie on disk: read once, hashed once, named by their path inside a snapshot."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.version.locate import Root, no_source

_COMPILED: Final = (*importlib.machinery.EXTENSION_SUFFIXES, ".so", ".pyd", ".dll", ".dylib")
_GENERATED: Final = (".pyc", ".pyo", ".pyi", "~")
_GENERATED_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})


class SourceFile:
    """One file of a first-party root.

    Attributes:
        path: its place in a snapshot, such as ``shop/core/pay.py``.
        file: where it is now.
        size: in bytes, when it was found.
        module: the module it is; None for package data and compiled code.
        is_package: whether it is the ``__init__`` of a package.
        is_compiled: whether it is native code, which no snapshot carries.
    """

    def __init__(self, path: str, file: Path, size: int) -> None:
        self.path: str = path
        self.file: Path = file
        self.size: int = size
        self.module: str | None
        self.is_package: bool
        self.is_compiled: bool = path.endswith(_COMPILED)
        self.module, self.is_package = module_of(path)
        self._data: bytes | None = None
        self._sha256: str | None = None

    def __repr__(self) -> str:
        return f"<SourceFile {self.path}>"

    @property
    def data(self) -> bytes:
        """Its bytes, as they were when they were first asked for.

        Raises:
            NoSource: it cannot be read.
        """
        if self._data is None:
            try:
                self._data = self.file.read_bytes()
            except OSError as error:
                raise no_source(self.module or self.path, "the workflow", error.strerror or str(error)) from error
        return self._data

    @property
    def sha256(self) -> str:
        """SHA-256 of its bytes, in hex."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self.data).hexdigest()
        return self._sha256


def module_of(path: str) -> tuple[str | None, bool]:
    """Return the module that a path inside a snapshot is, or None, and whether it is a package's own file."""
    if not path.endswith(".py"):
        return None, False
    *folders, name = path.split("/")  # not by pathlib, which takes most of the time that a project of many files needs
    name = name.removesuffix(".py") or name
    if name == "__init__" and folders:
        name = folders.pop()
        is_package = True
    else:
        is_package = False
    # A script's file may have any name; inside a package only what can be imported is a module.
    if folders and not all(part.isidentifier() for part in (*folders, name)):
        return None, False
    return ".".join((*folders, name)), is_package


def files_of(root: Root) -> Iterator[SourceFile]:
    """Give the files of a root: source, package data and compiled code, without what is hidden or generated."""
    if root.file is not None:
        yield SourceFile(f"{root.name}.py", root.file, root.file.stat().st_size)
        return
    seen: set[str] = set()
    for folder in root.folders:
        for found in _walk(folder, root.name.replace(".", "/"), frozenset()):
            # As when Python looks for it: the first folder of a namespace package wins.
            if found.path not in seen:
                seen.add(found.path)
                yield found


def _walk(folder: Path, prefix: str, above: frozenset[str]) -> Iterator[SourceFile]:
    real = os.path.realpath(folder)
    if real in above or (folder / "pyvenv.cfg").exists():
        return  # a link to a folder above it, or a virtual environment
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise no_source(prefix, "the workflow", error.strerror or str(error)) from error
    for entry in entries:
        path = f"{prefix}/{entry.name}"
        if entry.name.startswith(".") or entry.name.endswith(_GENERATED):
            continue
        try:
            status = entry.stat()
        except OSError:
            continue  # a link to nothing
        if stat.S_ISREG(status.st_mode):
            yield SourceFile(path, Path(entry.path), status.st_size)
        elif stat.S_ISDIR(status.st_mode) and entry.name not in _GENERATED_FOLDERS:
            yield from _walk(Path(entry.path), path, above | {real})


class SourceTree:
    """The first-party roots that were met so far, with their files. Each root is listed once, each file read once."""

    def __init__(self) -> None:
        self._roots: dict[str, Root] = {}
        self._files: dict[str, dict[str, SourceFile]] = {}
        self._modules: dict[str, SourceFile] = {}

    def add(self, root: Root) -> bool:
        """List the files of a root, unless it is here already. Return whether they were listed."""
        if root.name in self._roots:
            return False
        self._roots[root.name] = root
        files = self._files[root.name] = {found.path: found for found in files_of(root)}
        for found in files.values():
            # As when Python looks for it: a package hides a file of its name.
            if found.module is not None and (found.is_package or found.module not in self._modules):
                self._modules[found.module] = found
        return True

    def roots(self) -> Iterator[Root]:
        """Give the roots that are here."""
        yield from self._roots.values()

    def root(self, name: str) -> Root:
        """Return a root by its name."""
        return self._roots[name]

    def files(self, root: str) -> dict[str, SourceFile]:
        """Return the files of a root by path."""
        return self._files[root]

    def module(self, name: str) -> SourceFile | None:
        """Return the file of a module, or None: it is a namespace, no module, or not here."""
        return self._modules.get(name)
