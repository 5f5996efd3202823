"""Keeps a worker from mixing its own code with files that were changed under it after it registered.

A version is found from files, but what runs is what was loaded. So once the worker has registered, a first-party
module that is imported must be the registered one; it is compiled from the very bytes that were compared. Bytes are
hashed when a module is imported, and parsed only where they differ: comments and layout may.

What was imported before can only be checked by comparing functions, and only where the file is younger than the
process and Python's own loader made the module.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.errors import SourceChangedOnDisk
from perdure.loading.guard import within
from perdure.version.scan import scan
from perdure.version.tree import module_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from perdure.version.manifest import ManifestFile


class Registered(NamedTuple):
    """What was registered of a module: SHA-256 of its bytes, and its canonical hash where the file was looked into."""

    sha256: str
    canonical: str | None = None


def registered(manifest: Mapping[str, ManifestFile], canonical: Mapping[str, str]) -> dict[str, Registered]:
    """Return what was registered of each module of a release.

    Args:
        manifest: its files by path.
        canonical: canonical hashes by path, such as the parts of its definitions.
    """
    found: dict[str, Registered] = {}
    for path, file in manifest.items():
        module, is_package = module_of(path)
        if module is not None and (is_package or module not in found):
            found[module] = Registered(file.sha256, canonical.get(path))
    return found


class Watch:
    """Finder of modules that stands before the others and compares what they find.

    Args:
        roots: names of the first-party packages and modules.
        modules: what was registered of their modules.
        version: what was registered, such as ``order@1.3.0``, for messages.
    """

    def __init__(self, roots: Collection[str], modules: Mapping[str, Registered], version: str) -> None:
        self._roots = frozenset(roots)
        self._tops = {name.partition(".")[0] for name in self._roots}
        self._modules = modules
        self._version = version

    def install(self) -> None:
        """Compare from now on."""
        self.remove()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Compare no more."""
        while self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a first-party module is, with a loader that compares; None for others."""
        if fullname.partition(".")[0] not in self._tops or not within(fullname, self._roots):
            return None
        for finder in self._behind():
            spec: ModuleSpec | None = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._watch(fullname, spec)
                return spec
        if fullname in self._modules:  # registered, and gone
            raise self._changed(fullname)
        return None

    def _behind(self) -> list[Any]:
        """Return the finders that come next: another engine's watch, which comes first, has asked this one."""
        finders = sys.meta_path
        place = finders.index(self) + 1 if self in finders else 0
        return [finder for finder in finders[place:] if hasattr(finder, "find_spec")]

    def _watch(self, fullname: str, spec: ModuleSpec) -> None:
        if type(spec.loader) is SourceFileLoader:
            spec.loader = WatchingLoader(fullname, spec.loader.path, self)
        elif spec.origin is not None and spec.origin.endswith(".py") and Path(spec.origin).is_file():
            # Somebody's own loader, such as one that rewrites assertions, stays; what it will read is compared now.
            self.compare(fullname, Path(spec.origin).read_bytes())

    def compare(self, module: str, data: bytes) -> None:
        """Check that a module's bytes are the registered ones, but for comments and layout.

        Raises:
            SourceChangedOnDisk: they are not, or there was no such module.
        """
        known = self._modules.get(module)
        if known is None or (
            hashlib.sha256(data).hexdigest() != known.sha256 and scan(data).canonical != known.canonical
        ):
            raise self._changed(module)

    def check_loaded(self, modules: Mapping[str, ModuleType], since: float) -> None:
        """Check modules that were imported before. This is the weaker check: an edited constant may be missed.

        Args:
            modules: loaded modules by name.
            since: when the process started; an older file is what was loaded.

        Raises:
            SourceChangedOnDisk: a function of one is not what its file says.
        """
        for name, module in list(modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] not in self._tops or not within(name, self._roots):
                continue
            if file and file.endswith(".py") and not _is_rewritten(module):
                self._check_one(name, module, Path(file), since)

    def _check_one(self, name: str, module: ModuleType, file: Path, since: float) -> None:
        try:
            status = file.stat()
            if max(status.st_mtime, status.st_ctime) <= since:
                return
            on_disk = _codes(SourceFileLoader(name, str(file)).source_to_code(file.read_bytes(), str(file)))
        except (OSError, SyntaxError, ValueError):
            raise self._changed(name) from None
        for function in _functions(module):
            code = function.__code__
            there = on_disk.get(code.co_qualname)
            # What was made by a decorator or by `exec` has no place of its own in the file.
            if Path(code.co_filename) == file and "<" not in code.co_qualname and _shape(code) not in (there or ()):
                raise self._changed(name)

    def _changed(self, module: str) -> SourceChangedOnDisk:
        return SourceChangedOnDisk(
            f"{module} changed on disk after this worker registered {self._version}; restart the worker."
        )


class WatchingLoader(SourceFileLoader):
    """Compiles a module from the bytes that were compared, and from nothing that was kept."""

    def __init__(self, fullname: str, path: str, watch: Watch) -> None:
        super().__init__(fullname, path)
        self._watch = watch
        self._compared: CodeType | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Compare before there is a module.

        One that is refused later would be handed, empty, to the threads that wait for it.

        Raises:
            SourceChangedOnDisk: it is not the registered module.
        """
        self._compared = self._compare(spec.name)
        return super().create_module(spec)

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code.

        Raises:
            SourceChangedOnDisk: it is not the registered module.
        """
        compared, self._compared = self._compared, None
        return compared if compared is not None else self._compare(fullname)

    def _compare(self, fullname: str) -> CodeType:
        data = self.get_data(self.path)
        self._watch.compare(fullname, data)
        code: CodeType = self.source_to_code(data, self.path)
        return code


def process_started() -> float:
    """Return when this process started, by the clock of files; 0 where that cannot be told."""
    try:
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot
    except (OSError, ValueError, AttributeError):
        return 0.0


def _is_rewritten(module: ModuleType) -> bool:
    """Whether somebody's own loader made a module, such as one that rewrites assertions: it is not like its file."""
    loader = getattr(module, "__loader__", None)
    return loader is not None and not isinstance(loader, SourceFileLoader)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Give the functions a module defines, and the methods of its classes; decorated ones without their decoration."""
    todo: list[Any] = list(vars(module).values())
    seen: set[int] = set()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            if value.__module__ == module.__name__:
                yield value
            todo.append(getattr(value, "__wrapped__", None))
        elif isinstance(value, type):
            if value.__module__ == module.__name__:
                todo += vars(value).values()
        elif isinstance(value, staticmethod | classmethod):
            todo.append(value.__func__)
        elif value is not None and type(value).__module__ != "builtins":
            todo.append(vars(value).get("__wrapped__") if hasattr(value, "__dict__") else None)


def _codes(code: CodeType) -> dict[str, list[Any]]:
    """Return the shapes of all functions inside some code, by qualified name."""
    found: dict[str, list[Any]] = {}
    todo = [code]
    while todo:
        for one in todo.pop().co_consts:
            if isinstance(one, CodeType):
                found.setdefault(one.co_qualname, []).append(_shape(one))
                todo.append(one)
    return found


def _shape(code: CodeType) -> tuple[Any, ...]:
    """Return what a function does, without where it stands."""
    constants = tuple(map(_constant, code.co_consts))
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, constants


def _constant(value: object) -> Any:
    if isinstance(value, CodeType):
        return _shape(value)
    # Two equal sets may have different orders.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
