"""Folders of what old versions need on disk, releases or environments: held while used, and kept within a size.

INV-1  What a process runs from is not removed as long as it lives: it has a lock on it, from before anybody looked.
INV-2  Of what nobody holds, what was used last stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1 << 30
_STALE_S: Final = 3600.0


def hold(cache: Path, name: str) -> int:
    """Keep an entry, which need not be there yet, from being removed, and note that it is used now.

    Returns:
        A file descriptor. The entry is kept until all processes that have it have closed it, or ended.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _lock_of(cache, name)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(path)
    return descriptor


def trim(cache: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove entries that nobody holds until what is left has this size at most, those not used for longest first.

    Also removes what processes left that were killed while they made or removed an entry: hidden folders.
    """
    folders = [path for path in cache.iterdir() if path.is_dir()]
    for left in (path for path in folders if path.name.startswith(".")):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left)
    entries = sorted((path for path in folders if not path.name.startswith(".")), key=_used_at)
    left_over = list(entries)
    for entry in entries:
        # Measured anew each time: what an entry shared with another is the other's alone once it is gone.
        if sum(map(_size, left_over)) <= most_bytes:
            return
        if _remove(cache, entry):
            left_over.remove(entry)


def _lock_of(cache: Path, name: str) -> Path:
    return cache / f".{name}.lock"


def _used_at(entry: Path) -> float:
    try:
        return _lock_of(entry.parent, entry.name).stat().st_mtime
    except OSError:
        return 0.0


def _size(entry: Path) -> int:
    """Return the bytes of an entry; of a file with several names, hard links, its share of them."""
    total = 0
    for path in entry.rglob("*"):
        with suppress(OSError):
            found = path.lstat()
            total += found.st_size if stat.S_ISDIR(found.st_mode) else found.st_size // found.st_nlink
    return total


def _remove(cache: Path, entry: Path) -> bool:
    """Remove an entry, unless somebody holds it."""
    try:
        descriptor = os.open(_lock_of(cache, entry.name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Out of the way first: whoever comes for it next makes it anew.
        grave = Path(tempfile.mkdtemp(prefix=".removed-", dir=cache))
        entry.rename(grave / "entry")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    shutil.rmtree(grave, ignore_errors=True)
    return True
