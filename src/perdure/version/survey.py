"""From the workflows of a program to what registration stores: a definition of each, and one release for all of them.

`take_survey` reads and parses, and stores nothing. Registration then asks the database which contents of
``release.manifest`` it lacks, and inserts in one transaction: those ``blobs``, the release, and of each definition what
`publication.decide` says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import translate
from pathlib import Path
from typing import NamedTuple

from perdure.errors import InvalidValue
from perdure.version.closure import Closure, Dynamic, Project, closure
from perdure.version.config import freeze, secrets_in
from perdure.version.definition import Definition, WorkflowSource, define
from perdure.version.dependency import Dependencies, find_lock, record
from perdure.version.installed import Installed
from perdure.version.locate import Finder, Root, find, no_source
from perdure.version.manifest import Blob, Manifest, ManifestFile, check_sizes, make_blob, path_fault, tree_sha256
from perdure.version.notice import Notice
from perdure.version.scan import ScanLookup, encode, no_scans
from perdure.version.tree import SourceFile


class Release(NamedTuple):
    """The first-party files of a program at one time, and what they stand on.

    Attributes:
        tree_sha256: names the tree; equal trees are one release.
        manifest: path to file, for every first-party file, reached or not.
        roots: names of the first-party packages and modules.
        dependencies: of all its workflows together.
    """

    tree_sha256: str
    manifest: Manifest
    roots: tuple[str, ...]
    dependencies: Dependencies


class Survey:
    """What was found: one definition for each workflow, and the release they came in."""

    def __init__(
        self, project: Project, definitions: tuple[Definition, ...], release: Release, notices: tuple[Notice, ...],
        files: Iterable[SourceFile], base: Path,
    ) -> None:  # fmt: skip
        self.definitions = definitions
        self.release = release
        self.notices = notices
        self._project = project
        self._base = base
        self._files = {file.sha256: file for file in files}

    @property
    def base(self) -> Path:
        """The folder that the first of the workflows' modules is named from."""
        return self._base

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which the first-party code lies."""
        return self._project.folders()

    def resources(self) -> dict[str, bytes]:
        """Return the data files of the release, by path: what is not code."""
        return {
            path: self._files[file.sha256].data
            for path, file in self.release.manifest.items()
            if not path.endswith(".py")
        }

    def blobs(self, missing: Collection[str]) -> Iterator[Blob]:
        """Give the stored form of these contents, each with what is known of it as source."""
        for sha256 in missing:
            blob = make_blob(self._files[sha256].data)
            scan = self._project.scanned(sha256)
            yield blob if scan is None else blob._replace(canonical=scan.canonical, scan=encode(scan))


def take_survey(
    sources: Iterable[WorkflowSource],
    *,
    packages: tuple[str, ...] | None = None,
    bootstrap: str = "",
    find: Finder = find,
    scans: ScanLookup = no_scans,
    installed: Installed | None = None,
) -> Survey:
    """Find the version of each workflow. Files are read and parsed; nothing is imported or executed.

    Args:
        sources: the workflows.
        packages: names of the first-party packages; None to find them from the workflows' modules.
        bootstrap: module and function that set the application up, such as ``shop.boot:init``.
        find: finds the source of a top-level name.
        scans: gives what is kept of files that were seen before.
        installed: the installed distributions.

    Raises:
        NoSource: a workflow's module, or a file it needs, cannot be read.
        SnapshotTooLarge: the first-party files are too large to be stored.
        InvalidValue: a pattern matches nothing, or a configuration cannot be frozen.
    """
    project = Project(find, packages=packages, scans=scans)
    also = (bootstrap.partition(":")[0],) if bootstrap else ()
    found = [
        _Found(project, source, closure(project, source.entry, source.name, include=source.include, also=also))
        for source in sources
    ]
    kept = {file.path: file for one in found for file in one.kept()}
    notices = check_sizes({path: file.size for path, file in kept.items()})
    installed = installed or Installed()
    definitions = tuple(one.define(bootstrap, installed) for one in found)
    for one, definition in zip(found, definitions, strict=True):
        notices += secrets_in(definition.config, one.source.name)
    notices += _dynamic(found)
    manifest = {path: ManifestFile(kept[path].sha256, len(kept[path].data)) for path in sorted(kept)}
    roots = tuple(sorted({root for one in found for root in one.closure.roots}))
    release = Release(tree_sha256(manifest), manifest, roots, _united(definitions))
    return Survey(project, definitions, release, tuple(dict.fromkeys(notices)), kept.values(), found[0].base)


def _dynamic(found: Iterable[_Found]) -> list[Notice]:
    """Return what widened versions, a line for each place."""
    places: dict[Dynamic, list[str]] = {}
    for one in found:
        for place in one.closure.dynamic:
            places.setdefault(place, []).append(one.source.name)
    return [place.notice(names) for place, names in places.items()]


class _Found:
    """One workflow, with what it can reach."""

    def __init__(self, project: Project, source: WorkflowSource, reached: Closure) -> None:
        self.source = source
        self.closure = reached
        self._project = project
        self._own = project.entry_root(source.entry)
        self._config = [(name, source.entry.file.parent / name) for name in source.config_files]
        self._beside = _beside(self._own, source.resources or ())
        self._resources = self._matched()

    @property
    def base(self) -> Path:
        """The folder its module is named from."""
        return self._own.base

    def kept(self) -> Iterator[SourceFile]:
        """Give the files that are stored: all modules of its roots, and the data that belongs to it."""
        resources = {file.path for file in self._resources}
        for file in self._all():
            if file.is_compiled or (file.module is None and file.path not in resources):
                continue
            fault = path_fault(file.path)
            if fault is not None:
                raise no_source(ascii(file.path), self.source.name, fault)
            yield file

    def define(self, bootstrap: str, installed: Installed) -> Definition:
        """Return its version."""
        frozen = {file.resolve() for _, file in self._config}
        parts = {path: self._project.scan_of(file).canonical for path, file in self.closure.code.items()}
        parts |= {file.path: file.sha256 for file in self._resources if file.file.resolve() not in frozen}
        compiled = {file.path: file.sha256 for file in self._all() if file.is_compiled}
        dependencies = record(installed.reached(self.closure.outside), compiled, find_lock(self._own.base))
        config = freeze(self.source.config, self._config)
        return define(self.source, bootstrap=bootstrap, parts=parts, config=config, dependencies=dependencies)

    def _all(self) -> Iterator[SourceFile]:
        for root in self.closure.roots:
            yield from self._project.tree.files(root).values()
        yield from self._beside.values()

    def _matched(self) -> list[SourceFile]:
        """Return the package data that belongs to the workflow."""
        data = [file for file in self._all() if file.module is None and not file.is_compiled]
        if self.source.resources is None:
            return data
        matched: dict[str, SourceFile] = {}
        for pattern in self.source.resources:
            match = re.compile(translate(pattern)).match
            hits = {file.path: file for file in data if match(file.path) or match(file.path.partition("/")[2])}
            if not hits:
                message = f"resources={pattern!r} of {self.source.name} matches no file"
                raise InvalidValue(message)
            matched |= hits
        return list(matched.values())


def _beside(own: Root, patterns: Iterable[str]) -> dict[str, SourceFile]:
    """Return what lies beside a script and is named: it has no package whose data could belong to it."""
    found: dict[str, SourceFile] = {}
    for pattern in patterns if own.file is not None else ():
        if not pattern.startswith("/") and ".." not in pattern.split("/"):
            for file in sorted(own.base.glob(pattern)):
                path = file.relative_to(own.base).as_posix()
                if file.is_file() and not path.endswith(".py"):
                    found[path] = SourceFile(path, file, file.stat().st_size)
    return found


def _united(definitions: Iterable[Definition]) -> Dependencies:
    """Return what several workflows stand on together."""
    all_of = [definition.dependencies for definition in definitions]
    lock = next((one.lock for one in all_of if one.lock is not None), None)
    compiled = {path: digest for one in all_of for path, digest in one.compiled.items()}
    distributions = {name: version for one in all_of for name, version in one.distributions.items()}
    return record(dict(sorted(distributions.items())), compiled, lock)
