"""The commit that a folder was checked out from: a note for people, never part of what a version is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST: Final = 4096


def source_commit(folder: Path) -> str | None:
    """Return the commit that is checked out where a folder is, read from files; None where that cannot be told."""
    for above in (folder, *folder.parents):
        marked = above / ".git"
        try:
            if marked.is_dir():
                return _head(marked)
            if marked.is_file():  # a work tree beside its repository
                text = _text(marked)
                return _head((above / text.removeprefix("gitdir:").strip()).resolve())
        except (OSError, UnicodeDecodeError):
            return None
    return None


def _head(repository: Path) -> str | None:
    head = _text(repository / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref:").strip()
    if ".." in name.split("/") or name.startswith("/"):
        return None
    common = repository / "commondir"
    base = (repository / _text(common).strip()).resolve() if common.is_file() else repository
    for place in (repository, base):
        if (place / name).is_file():
            found = _text(place / name).strip()
            return found if _COMMIT.fullmatch(found) else None
    return _packed(base / "packed-refs", name)


def _packed(file: Path, name: str) -> str | None:
    if not file.is_file():
        return None
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            commit, _, ref = line.strip().partition(" ")
            if ref == name and _COMMIT.fullmatch(commit):
                return commit
    return None


def _text(file: Path) -> str:
    with file.open(encoding="utf-8") as stream:
        return stream.read(_LONGEST)
