"""The corpus of labelled edits: a project, a change to it, and what hash and replay should say about that.

A case says

* ``title``, and ``seen``: a public thread in which this kind of change was met;
* ``behaviour``: ``same`` or ``changed``, the truth, for all runs there may be;
* ``hash``: ``same`` or ``other``, what scheme ``def1`` answers;
* ``verdict``: what the replay of one recorded run answers, see below;
* ``include``, ``resources``, ``deps``, ``config`` (before and after), ``config_files``: how the workflow is declared;
* ``entry``: its function after the edit, where that has moved;
* ``setup``, ``edit``: changes to files, ``setup`` before and after. A change with ``old`` replaces the one place where
  that stands; one without writes the file. ``crlf`` and ``bom`` change how every file is written.

The recorded run is that of the project before the edit, started with ``("tea", 3)``. Of its operations the first
``recorded`` are there; by default 4, and it sleeps. ``at k`` in a verdict is the place, from 1, of the operation
that was due.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perdure.version.definition import WorkflowSource
from tests.version.projects import source, write

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One labelled edit."""

    title: str
    behaviour: Literal["same", "changed"]
    hash: Literal["same", "other"]
    verdict: str
    seen: str = ""
    recorded: int = 4
    include: list[str] | None = None
    resources: list[str] | None = None
    deps: Literal["record", "pin"] = "record"
    config: list[Any] = field(default_factory=lambda: [None, None])
    config_files: list[str] = field(default_factory=list)
    entry: str = "shop.flow:order"
    setup: list[dict[str, str]] = field(default_factory=list)
    edit: list[dict[str, str]] = field(default_factory=list)
    crlf: bool = False
    bom: bool = False

    def before(self, folder: Path) -> WorkflowSource:
        """Write the project before the edit, and return its workflow."""
        write(folder, changed(base(), self.setup))
        return self._source(folder, "shop.flow:order", self.config[0])

    def after(self, folder: Path) -> WorkflowSource:
        """Write the project after the edit, and return its workflow."""
        files = changed(changed(base(), self.setup), self.edit)
        mark = b"\xef\xbb\xbf" if self.bom else b""
        ending = b"\r\n" if self.crlf else b"\n"
        code = {path: text for path, text in files.items() if path.endswith(".py")}
        write(folder, {path: text for path, text in files.items() if path not in code})
        write(folder, {path: mark + text.encode().replace(b"\n", ending) for path, text in code.items()})
        return self._source(folder, self.entry, self.config[1])

    def _source(self, folder: Path, entry: str, config: Any) -> WorkflowSource:
        return source(
            folder,
            entry,
            include=None if self.include is None else tuple(self.include),
            resources=None if self.resources is None else tuple(self.resources),
            deps=self.deps,
            config=config,
            config_files=tuple(self.config_files),
        )


def base() -> dict[str, str]:
    """Return the files of the project that every case edits."""
    return tomllib.loads((CORPUS / "base.toml").read_text("utf-8"))


def cases() -> list[Case]:
    """Return the whole corpus."""
    files = [file for file in sorted(CORPUS.glob("*.toml")) if file.name != "base.toml"]
    return [Case(**case) for file in files for case in tomllib.loads(file.read_text("utf-8"))["case"]]


def changed(files: dict[str, str], edits: list[dict[str, str]]) -> dict[str, str]:
    """Return the files with the edits done."""
    files = dict(files)
    for edit in edits:
        path, old, new = edit["file"], edit.get("old"), edit["new"]
        if old is None:
            files[path] = new
        else:
            assert files[path].count(old) == 1, f"{old!r} stands {files[path].count(old)} times in {path}"
            files[path] = files[path].replace(old, new)
    return files
