"""The folder that releases are unpacked into: held while they are used, and kept within a size.

INV-1  What a process runs from is not removed as long as it lives: it holds a lock on it, from before it looks.
INV-2  Of what nobody holds, the releases that were used last stay.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1 << 30
_STALE_S: Final = 3600.0
_held: dict[Path, int] = {}
"""Open locks of this process, which end with it."""


def hold(cache: Path, tree: str) -> None:
    """Keep a release from being removed for as long as this process lives, and note that it is used now."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _lock_of(cache, tree)
    if path not in _held:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _held[path] = descriptor
    os.utime(path)


def trim(cache: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove releases that nobody holds until what is left has this size at most, those not used for longest first.

    Also removes what processes left that were killed while they unpacked.
    """
    for left in (*cache.glob(".unpacking-*"), *cache.glob(".altered-*")):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left)
    trees = [path for path in cache.iterdir() if path.is_dir() and not path.name.startswith(".")]
    sizes = {path: _size(path) for path in trees}
    excess = sum(sizes.values()) - most_bytes
    for tree in sorted(trees, key=_used_at):
        if excess <= 0:
            return
        if _remove(cache, tree):
            excess -= sizes[tree]


def _lock_of(cache: Path, tree: str) -> Path:
    return cache / f".{tree}.lock"


def _used_at(tree: Path) -> float:
    try:
        return _lock_of(tree.parent, tree.name).stat().st_mtime
    except OSError:
        return 0.0


def _size(tree: Path) -> int:
    total = 0
    for path in tree.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def _remove(cache: Path, tree: Path) -> bool:
    """Remove a release, unless somebody holds it."""
    try:
        descriptor = os.open(_lock_of(cache, tree.name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Out of the way first: whoever comes for it next unpacks it anew.
        grave = Path(tempfile.mkdtemp(prefix=".altered-", dir=cache))
        tree.rename(grave / "tree")
        shutil.rmtree(grave, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
