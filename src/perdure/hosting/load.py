"""How an old version is loaded: its files unpacked, the way to others barred, then its set-up run, then its code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from perdure.api.decorators import Workflow
from perdure.errors import EnvironmentMismatch, NotInSnapshot, SnapshotCorrupt, VersionLoadFailed
from perdure.hosting.blobs import open_blobs
from perdure.loading.guard import Guard, within
from perdure.loading.paths import settle
from perdure.loading.provided import Provided
from perdure.runtime.hosts.cache import hold, trim
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import Entry, Job
from perdure.version.comparison import Comparison, compare
from perdure.version.unpack import unpack


class Loaded(NamedTuple):
    """What became of a job.

    Attributes:
        workflows: by the id of the version that each is.
        causes: why others cannot run, likewise.
        notices: what differs from what was recorded.
        tree: the folder that the release is in.
    """

    workflows: dict[int, Workflow[Any, Any]]
    causes: dict[int, Cause]
    notices: list[str]
    tree: Path = Path()


def load(job: Job) -> Loaded:
    """Load all versions of a job. What the old code raises is told as a cause, and never raised."""
    os.environ.update(job.environment)
    comparison = compare(job.distributions, job.python)
    causes = _mismatches(job, comparison)
    entries = [entry for entry in job.entries if entry.version_id not in causes]
    workflows: dict[int, Workflow[Any, Any]] = {}
    tree: Path | None = None
    if entries:
        try:
            tree = _unpacked(job)
            guard = _barred(job, tree)
            if job.bootstrap:
                _called(job.bootstrap)
        except BaseException as error:  # noqa: BLE001 - the old code may raise anything, SystemExit too
            causes |= {entry.version_id: _cause(job, entry, error, tree) for entry in entries}
            return Loaded({}, causes, comparison.notices)
        for entry in entries:
            try:
                workflows[entry.version_id] = _imported(entry)
            except BaseException as error:  # noqa: BLE001 - likewise
                causes[entry.version_id] = _cause(job, entry, error, tree)
        guard.install()  # whatever came before it meanwhile: it has to be the first
        _be_main(entries)
    return Loaded(workflows, causes, comparison.notices, tree or Path())


def foreign_modules(job: Job) -> list[str]:
    """Return the loaded modules that are not first-party, in the order in which they were loaded."""
    own = {*job.roots, *job.elsewhere}
    return [
        name for name, module in list(sys.modules.items())
        if name != "__main__" and not within(name, own) and getattr(module, "__spec__", None) is not None
    ]  # fmt: skip


def _mismatches(job: Job, comparison: Comparison) -> dict[int, Cause]:
    faults = {entry: comparison.fault(pinned=entry.pinned) for entry in job.entries}
    return {
        entry.version_id: Cause(EnvironmentMismatch.code, entry.version, fault, job.unbuilt)
        for entry, fault in faults.items() if fault
    }  # fmt: skip


def _unpacked(job: Job) -> Path:
    cache = Path(job.cache)
    hold(cache, job.tree)  # until this process ends
    tree = unpack(job.tree, job.manifest, open_blobs(job).fetch, cache, job.version)
    trim(cache)
    return tree


def _barred(job: Job, tree: Path) -> Guard:
    settle(
        tree, job.deployed, path=job.path, roots=job.roots, version=job.version, elsewhere=job.elsewhere,
        distributions=job.distributions,
    )  # fmt: skip
    guard = Guard(
        str(tree), job.roots, version=job.version, elsewhere=job.elsewhere, provided=Provided(job.distributions),
        refuse=lambda name, text: NotInSnapshot(text, name=name),
    )  # fmt: skip
    guard.install()
    # Children of steps would load this program again; and what they unpickle from `__main__` is the version's.
    sys.modules["__main__"] = ModuleType("__main__")
    return guard


def _called(bootstrap: str) -> None:
    found = _named(bootstrap)
    if not callable(found):
        raise TypeError(f"bootstrap {bootstrap} is no function")
    found()


def _imported(entry: Entry) -> Workflow[Any, Any]:
    """Return a workflow. Its function's name is known; the workflow itself may have another in its module."""
    module = importlib.import_module(entry.place.partition(":")[0])
    with suppress(AttributeError):
        found = _named(entry.place)
        if isinstance(found, Workflow) and found.name == entry.workflow:
            return found
    for value in vars(module).values():
        if isinstance(value, Workflow) and value.name == entry.workflow:
            return value
    raise LookupError(f"{module.__name__} has no workflow {entry.workflow!r}")


def _named(place: str) -> Any:
    name, _, path = place.partition(":")
    found: Any = importlib.import_module(name)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _be_main(entries: list[Entry]) -> None:
    """Let ``__main__`` be the version's script, if it is one: stored data may name classes by it."""
    names = {entry.place.partition(":")[0] for entry in entries}
    scripts = [name for name in names if "." not in name and not hasattr(sys.modules.get(name), "__path__")]
    if len(scripts) == 1 and scripts[0] in sys.modules:
        sys.modules["__main__"] = sys.modules[scripts[0]]


def _cause(job: Job, entry: Entry, error: BaseException, tree: Path | None) -> Cause:
    if isinstance(error, SnapshotCorrupt):
        return Cause(error.code, entry.version, str(error))
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first = (text.strip().splitlines() or [""])[0].rstrip(".")
    detail = f"{type(error).__name__} {first}".rstrip() + _place(error, tree)
    unimported = isinstance(error, ImportError) and not isinstance(error, NotInSnapshot)
    return Cause(VersionLoadFailed.code, entry.version, detail, job.unbuilt, unimported)


def _place(error: BaseException, tree: Path | None) -> str:
    """Return file and line in the version's own code that raised."""
    if tree is None:
        return ""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    inside = [(Path(file), number) for file, number in places if Path(file).is_relative_to(tree)]
    return f" in {inside[-1][0].relative_to(tree)}:{inside[-1][1]}" if inside else ""
