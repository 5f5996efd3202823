"""The identity of a workflow's version: one SHA-256 over everything that is frozen with it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from perdure.version.config import canonical_json
from perdure.version.dependency import Dependencies, DepsPolicy
from perdure.version.locate import Entry
from perdure.version.scan import SCHEME


class WorkflowSource(NamedTuple):
    """A workflow whose version is asked for, as it is declared.

    Attributes:
        name: its name.
        entry: its function.
        include: patterns of modules that it imports by a computed name; None where that was not said.
        resources: patterns of package data that belong to it; None for all.
        config: configuration that is frozen with it.
        config_files: configuration files, relative to the folder of its module.
        deps: whether dependencies are recorded only, or part of it.
    """

    name: str
    entry: Entry
    include: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    config: Any = None
    config_files: tuple[str, ...] = ()
    deps: DepsPolicy = "record"


class Definition(NamedTuple):
    """One version of one workflow: its content.

    Attributes:
        workflow: name of the workflow.
        scheme: how ``sha256`` was computed.
        sha256: the identity, in hex.
        entry: module and name of the function.
        bootstrap: module and name of the function that sets the application up; empty for none.
        parts: path of each file that counts, to the SHA-256 of its canonical syntax tree, or of its bytes for data.
        config: the frozen configuration as canonical JSON; empty for none.
        deps: whether dependencies are part of it.
        dependencies: what it was recorded with.
    """

    workflow: str
    scheme: str
    sha256: str
    entry: str
    bootstrap: str
    parts: Mapping[str, str]
    config: str
    deps: DepsPolicy
    dependencies: Dependencies


def define(
    source: WorkflowSource, *, bootstrap: str, parts: Mapping[str, str], config: str, dependencies: Dependencies
) -> Definition:
    """Return the version that these parts make."""
    entry = str(source.entry)
    ordered = {path: parts[path] for path in sorted(parts)}
    new = Definition(source.name, SCHEME, "", entry, bootstrap, ordered, config, source.deps, dependencies)
    return new._replace(sha256=sha256_of(new))


def sha256_of(definition: Definition) -> str:
    """Return the identity, in hex, of what a definition says, in the scheme of this release."""
    parts = [[path, definition.parts[path]] for path in sorted(definition.parts)]
    form = [SCHEME, definition.entry, definition.bootstrap, parts, definition.config, _pins(definition)]
    return hashlib.sha256(canonical_json(form).encode()).hexdigest()


def differences(old: Definition, new: Definition) -> list[str]:
    """Return what differs between two versions: paths of files, then what else counts."""
    paths = sorted(path for path in {*old.parts, *new.parts} if old.parts.get(path) != new.parts.get(path))
    rest = {
        "the entry point": (old.entry, old.bootstrap) != (new.entry, new.bootstrap),
        "the config": old.config != new.config,
        "the pinned dependencies": _pins(old) != _pins(new),
    }
    return paths + [name for name, differs in rest.items() if differs]


def _pins(definition: Definition) -> str:
    return definition.dependencies.pins if definition.deps == "pin" else ""
