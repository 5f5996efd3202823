"""What a workflow can reach: the modules its own module imports, and those they import, found from syntax alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import cache
from typing import Final, NamedTuple

from perdure.errors import InvalidValue
from perdure.version.locate import Entry, Finder, Root, is_engine, neighbours, root_of_entry
from perdure.version.notice import Notice
from perdure.version.reference import ANYTHING, Computed, Import
from perdure.version.scan import Scan, ScanLookup, no_scans, scan
from perdure.version.tree import SourceFile, SourceTree

_MOST_NOTICES: Final = 10


class Dynamic(NamedTuple):
    """An import by a computed name.

    Attributes:
        path: the file.
        line: its line.
    """

    path: str
    line: int

    def notice(self, workflows: Sequence[str]) -> Notice:
        """Return what to say of it, once for all workflows that it widens."""
        first = workflows[0] if len(workflows) == 1 else f"{workflows[0]} and {len(workflows) - 1} more"
        text = (
            f"{self.path}:{self.line} imports a module by a computed name; {first} "
            f"{'is' if len(workflows) == 1 else 'are'} now bound to the whole package. Narrow it with include=[...]."
        )
        return Notice("dynamic_import", text)


class Closure(NamedTuple):
    """What one workflow can reach.

    Attributes:
        roots: names of the first-party roots.
        code: files of the modules, by path.
        outside: top-level names that are imported and not first-party.
        dynamic: imports by a computed name that widened it to whole roots.
    """

    roots: tuple[str, ...]
    code: dict[str, SourceFile]
    outside: tuple[str, ...]
    dynamic: tuple[Dynamic, ...]


class Project:
    """First-party code of one program: its files and what each of them says, for any number of workflows."""

    def __init__(self, find: Finder, *, packages: tuple[str, ...] | None = None, scans: ScanLookup = no_scans) -> None:
        self.tree: SourceTree = SourceTree()
        self.packages: tuple[str, ...] | None = packages
        self._find: Finder = cache(find)  # a name is looked for once, whoever asks
        self._lookup = scans
        self._known: dict[str, Scan] = {}
        self._roots: dict[str, Root | None] = {}

    def entry_root(self, entry: Entry) -> Root:
        """Return the root that holds a workflow's module. It may be installed.

        Raises:
            NoSource: the module is not there.
        """
        return self._listed(root_of_entry(entry, self._find, self.packages))

    def root_of(self, module: str) -> Root | None:
        """Return the first-party root that any module belongs to, or None."""
        if self.packages is None:
            name = module.partition(".")[0]
        else:
            name = next((one for one in self.packages if f"{module}.".startswith(f"{one}.")), "")
        if name not in self._roots:
            unnamed = self.packages is None
            root = self._find(name) if name and not (unnamed and is_engine(name)) else None
            self._roots[name] = None if root is None or (unnamed and root.installed) else self._listed(root)
        return self._roots[name]

    def scan_of(self, file: SourceFile) -> Scan:
        """Return what a file says."""
        found = self._known.get(file.sha256)
        if found is None:
            found = self._known[file.sha256] = scan(file.data)
        return found

    def scanned(self, sha256: str) -> Scan | None:
        """Return what is worth keeping beside these bytes, if they were looked into."""
        found = self._known.get(sha256)
        return found if found is not None and found.parsed else None

    def folders(self) -> tuple[str, ...]:
        """Return the folders that hold the roots that were met."""
        return tuple(sorted({str(root.base) for root in self.tree.roots()}))

    def neighbours(self, root: Root) -> Iterator[Root]:
        """Give the roots that lie beside one; none where the project says which packages are its own."""
        if self.packages is None and not root.installed:
            for name in neighbours(root.base):
                beside = self.root_of(name)
                if beside is not None:
                    yield beside

    def _listed(self, root: Root) -> Root:
        if not self.tree.add(root):
            return root
        code = {found.sha256 for found in self.tree.files(root.name).values() if found.module is not None}
        self._known.update(self._lookup(sorted(code - self._known.keys())))
        return root


def closure(
    project: Project, entry: Entry, workflow: str, *, include: Iterable[str] | None = None, also: Iterable[str] = ()
) -> Closure:
    """Return what a workflow can reach.

    Args:
        project: the code it is part of.
        entry: its function.
        workflow: its name, for messages.
        include: patterns of modules that it imports by a computed name. If given, even empty, these widen nothing.
        also: modules that belong to it as its own does, such as the one that sets the application up.

    Raises:
        NoSource: its module, or a file that it needs, cannot be read.
        InvalidValue: a pattern of ``include`` matches no module.
    """
    walk = _Walk(project, project.entry_root(entry))
    walk.visit(entry.module)
    for module in also:
        walk.visit(module)
    for pattern in include or ():
        walk.include(pattern, workflow)
    walk.run()
    if walk.computed and include is None:
        walk.widen()
        dynamic = tuple(Dynamic(file.path, found.line) for file, found in walk.computed[:_MOST_NOTICES])
    else:
        dynamic = ()
    code = {file.path: file for file in walk.seen.values()}
    return Closure(tuple(sorted(walk.roots)), dict(sorted(code.items())), tuple(sorted(walk.outside)), dynamic)


class _Walk:
    """One search through the imports, breadth first."""

    def __init__(self, project: Project, own: Root) -> None:
        self.project = project
        self.roots: set[str] = {own.name}
        self.seen: dict[str, SourceFile] = {}
        self.outside: set[str] = set()
        self.computed: list[tuple[SourceFile, Computed]] = []
        self._own = own
        self._todo: list[SourceFile] = []
        self._mentions: set[str] = set()

    def visit(self, module: str) -> None:
        """Take in a module and the packages above it, if it is first-party."""
        root = self._root(module)
        if root is None:
            if module:
                self.outside.add(module.partition(".")[0])
            return
        self.roots.add(root.name)
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            self._take(self.project.tree.module(".".join(parts[:count])))

    def run(self) -> None:
        """Follow everything that was taken in."""
        while self._todo:
            while self._todo:
                file = self._todo.pop()
                found = self.project.scan_of(file).references
                for one in found.imports:
                    self._follow(file, one)
                self._mentions.update(found.mentions)
                self.computed += [(file, one) for one in found.computed]
            # Last, when the roots that imports lead to are known.
            for mention in sorted(self._mentions):
                self._mention(mention)

    def widen(self) -> None:
        """Take in every module of every root, and what else a computed name may lead to."""
        done: set[str] = set()
        heads: set[str] = set()
        while True:
            self.computed.sort(key=lambda pair: (pair[0].path, pair[1]))
            for head in {one.head for _, one in self.computed} - heads:
                heads.add(head)
                if head not in (ANYTHING, "."):
                    self.visit(head)
            if ANYTHING in heads:
                beside = [
                    found for name in self.roots for found in self.project.neighbours(self.project.tree.root(name))
                ]
                self.roots.update(root.name for root in beside)
            new = self.roots - done
            if not new:
                return
            done |= new
            for name in sorted(new):
                for file in self.project.tree.files(name).values():
                    if file.module is not None:
                        self._take(file)
            self.run()

    def include(self, pattern: str, workflow: str) -> None:
        """Take in the modules that a pattern matches.

        Raises:
            InvalidValue: there are none.
        """
        root = self._root(re.split(r"[*?\[]", pattern, maxsplit=1)[0].rstrip("."))
        matches = re.compile(translate(pattern)).match
        names = [file.module for file in self.project.tree.files(root.name).values()] if root is not None else []
        found = [name for name in names if name is not None and matches(name)]
        if not found:
            message = f"include={pattern!r} of {workflow} matches no first-party module"
            raise InvalidValue(message)
        for name in found:
            self.visit(name)

    def _take(self, file: SourceFile | None) -> None:
        if file is not None and file.path not in self.seen:
            self.seen[file.path] = file
            self._todo.append(file)

    def _follow(self, file: SourceFile, one: Import) -> None:
        base = _absolute(file, one)
        if base is None:
            return
        self.visit(base)
        for name in self._starred(base) if "*" in one.names else one.names:
            # Attribute or submodule: only what is a file counts.
            self._take(self.project.tree.module(f"{base}.{name}"))

    def _starred(self, package: str) -> Iterable[str]:
        """Return the submodules that ``from package import *`` may take."""
        file = self.project.tree.module(package)
        if file is None or not file.is_package:
            return ()
        exports = self.project.scan_of(file).references.exports
        if exports is not None:
            return exports
        head = f"{package}."
        root = self._root(package)
        modules = [one.module for one in self.project.tree.files(root.name).values()] if root is not None else []
        return sorted({name.removeprefix(head).partition(".")[0] for name in modules if name and name.startswith(head)})

    def _root(self, module: str) -> Root | None:
        return self._own if f"{module}.".startswith(f"{self._own.name}.") else self.project.root_of(module)

    def _mention(self, text: str) -> None:
        """Follow a text that names a first-party module, or something in one."""
        module = text.partition(":")[0]
        if any(f"{module}.".startswith(f"{root}.") for root in self.roots):
            while module and self.project.tree.module(module) is None:
                module = module.rpartition(".")[0]
            self.visit(module)


def _absolute(file: SourceFile, one: Import) -> str | None:
    """Return the absolute name of what is imported, or None where it leads out of the tree."""
    if not one.level:
        return one.module
    package = (file.module or "").split(".")
    drop = one.level - file.is_package
    if drop >= len(package):
        return None
    package = package[: len(package) - drop]
    return ".".join([*package, one.module] if one.module else package)
