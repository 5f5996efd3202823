"""A stored tree back on disk, in a private folder, after everything in it was checked.

Stored code is code that will be run, so nothing of it is trusted: paths, sizes, contents and the tree's own name are
checked, and the folder appears under its final name only when all of it was right.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from perdure.errors import SnapshotCorrupt
from perdure.version.manifest import (
    CODEC,
    MOST_FILES,
    TREE_LIMIT,
    Blob,
    Manifest,
    ManifestFile,
    collides,
    path_fault,
    tree_sha256,
)

Fetch = Callable[[Collection[str]], Iterable[Blob]]
"""Gives stored contents by their SHA-256."""

_PRIVATE: Final = 0o700
_BYTECODE: Final = "__pycache__"


def unpack(tree: str, manifest: Manifest, fetch: Fetch, cache: Path, version: str) -> Path:
    """Write a tree below a folder, unless it is there already, and return where it is.

    A tree that is there is checked again, and replaced where it was altered. Several processes may do this at once.

    Args:
        tree: name of the tree, as `tree_sha256` gave it.
        manifest: its files.
        fetch: gives their contents.
        cache: the folder; it is made private to this user.
        version: what it is for, such as ``order@1.3.0``, for messages.

    Raises:
        SnapshotCorrupt: what is stored is not what was registered; nothing of it is left on disk.
        OSError: the disk is full, or the folder belongs to somebody else.
    """
    check_manifest(tree, manifest, version)
    make_private(cache)
    final = cache / tree
    if _is_intact(final, manifest):
        return final
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=cache))  # mode 0700
    try:
        wanted = {file.sha256 for file in manifest.values()}
        contents = {blob.sha256: blob for blob in fetch(sorted(wanted))}
        for path, file in manifest.items():
            _write(scratch / path, content(path, file, contents.get(file.sha256), version))
        _settle(scratch, final, manifest)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def check_manifest(tree: str, manifest: Manifest, version: str) -> None:
    """Check what a manifest says before anything is read or written for it.

    Raises:
        SnapshotCorrupt: a path leads elsewhere, it is too large, or it is not the manifest of this tree.
    """
    for path in manifest:
        fault = path_fault(path)
        if fault is not None:
            raise _corrupt(version, f"{path!a} is {fault}")
    clash = collides(manifest)
    if clash is not None:
        raise _corrupt(version, f"{clash} is both a file and a folder")
    sizes = [file.size for file in manifest.values()]
    if any(size < 0 for size in sizes) or sum(sizes) > TREE_LIMIT or len(sizes) > MOST_FILES:
        raise _corrupt(version, "its manifest says more than can have been stored")
    if tree_sha256(manifest) != tree:
        raise _corrupt(version, f"its manifest does not match {tree[:8]}")


def content(path: str, file: ManifestFile, blob: Blob | None, version: str) -> bytes:
    """Return the bytes of one file of a manifest, checked.

    Raises:
        SnapshotCorrupt: they are missing, or not those that were stored.
    """
    if blob is None:
        raise _corrupt(version, f"{path} ({file.sha256[:8]}) is missing")
    if blob.codec != CODEC:
        raise _corrupt(version, f"{path} is stored in an unknown way ({blob.codec!a})")
    stream = zlib.decompressobj()
    try:
        # One byte more than promised is enough to know; the rest of a bomb is never unfolded.
        data = stream.decompress(blob.data, file.size + 1)
    except zlib.error:
        data = None
    if data is None or len(data) != file.size or not stream.eof or hashlib.sha256(data).hexdigest() != file.sha256:
        raise _corrupt(version, f"{path} does not match {file.sha256[:8]}")
    return data


def _corrupt(version: str, what: str) -> SnapshotCorrupt:
    return SnapshotCorrupt(f"{version}: {what}; the stored source was altered. Nothing was run.")


def make_private(folder: Path) -> None:
    """Make a folder that only this user can read and change.

    Raises:
        OSError: that cannot be, for example because it belongs to somebody else.
    """
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        message = f"{folder} belongs to another user, who could change what is run from it"
        raise PermissionError(message)
    if status.st_mode & 0o077:
        folder.chmod(_PRIVATE)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _settle(scratch: Path, final: Path, manifest: Manifest) -> None:
    """Give a finished tree its name. Where another process was faster and right, its tree stays."""
    for _ in range(10):
        try:
            scratch.rename(final)
            return
        except OSError:
            if not final.exists():
                raise
        if _is_intact(final, manifest):
            return
        # Damaged: out of the way under a name of its own, so that two processes cannot remove each other's.
        grave = Path(tempfile.mkdtemp(prefix=".altered-", dir=final.parent))
        try:
            final.rename(grave / "tree")
        except FileNotFoundError:
            pass
        finally:
            shutil.rmtree(grave, ignore_errors=True)
    message = f"{final} cannot be replaced"
    raise OSError(message)


def _is_intact(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder holds these files and no others. Bytecode may be there: Python writes it."""
    left = dict(manifest)
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return False
        for path in folder.rglob("*"):
            if path.is_symlink():
                return False
            if path.parent.name != _BYTECODE and not path.is_dir():
                file = left.pop(path.relative_to(folder).as_posix(), None)
                if file is None or hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
                    return False
    except OSError:
        return False
    return not left
