"""The files of a release as they are stored: one compressed blob per content, and a list that says what lies where."""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from perdure.errors import SnapshotTooLarge
from perdure.version.config import canonical_json
from perdure.version.notice import Notice

CODEC: Final = "zlib"
MIB: Final = 2**20
FILE_WARNS: Final = 1 * MIB
TREE_LIMIT: Final = 16 * MIB
MOST_FILES: Final = 20_000

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\:\ud800-\udfff]")
_NATIVE: Final = (".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib")
_LONGEST_PATH: Final = 500
_LONGEST_NAME: Final = 255
_ELSEWHERE: Final = frozenset({"", ".", ".."})


class ManifestFile(NamedTuple):
    """One file: SHA-256 of its bytes in hex, and their number."""

    sha256: str
    size: int


Manifest = Mapping[str, ManifestFile]
"""Path inside the snapshot to file; in order of the paths."""


class Blob(NamedTuple):
    """Stored bytes of one content, by the SHA-256 of what they hold.

    Attributes:
        sha256: of the bytes before compression, in hex.
        codec: how they are compressed.
        raw_size: their number before compression.
        data: the compressed bytes.
        canonical: canonical hash of the source they are, if it was looked into.
        scan: what else is known of that source, as JSON.
    """

    sha256: str
    codec: str
    raw_size: int
    data: bytes
    canonical: str | None = None
    scan: bytes | None = None


def make_blob(data: bytes) -> Blob:
    """Return bytes as they are stored."""
    return Blob(hashlib.sha256(data).hexdigest(), CODEC, len(data), zlib.compress(data, 6))


def tree_sha256(manifest: Manifest) -> str:
    """Return the SHA-256, in hex, that names a whole tree: of its paths and what lies there."""
    lines = [[path, manifest[path].sha256] for path in sorted(manifest)]
    return hashlib.sha256(canonical_json(["tree1", lines]).encode()).hexdigest()


def path_fault(path: str) -> str | None:
    """Return what forbids a path in a snapshot, or None: it may lead to plain files of source and data only."""
    parts = path.split("/")
    size = len(path.encode("utf-8", "replace"))
    if not path or size > _LONGEST_PATH or _UNSAFE.search(path):
        return "no plain path"
    if not _ELSEWHERE.isdisjoint(parts) or (
        size > _LONGEST_NAME and any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in parts)
    ):
        return "no relative path inside a snapshot"
    # What begins with a dot has no suffix there.
    if parts[-1][1:].lower().endswith(_NATIVE) or "__pycache__" in parts:
        return "compiled code, which no snapshot carries"
    return None


def check_sizes(sizes: Mapping[str, int]) -> list[Notice]:
    """Check how much a release would store; return a warning for each large file.

    Raises:
        SnapshotTooLarge: more than 16 MiB in all.
    """
    total = sum(sizes.values())
    if total > TREE_LIMIT:
        largest = max(sizes, key=lambda path: (sizes[path], path))
        raise SnapshotTooLarge(
            f"first-party files add up to {mib(total)} (limit {TREE_LIMIT // MIB}). "
            f"Largest: {largest} {mib(sizes[largest])}. Use resources=[...]."
        )
    if len(sizes) > MOST_FILES:
        raise SnapshotTooLarge(f"there are {len(sizes)} first-party files (limit {MOST_FILES}). Use packages=[...].")
    return [
        Notice("large_file", f"{path} is {mib(size)}; every version that changes it stores it again.")
        for path, size in sorted(sizes.items())
        if size > FILE_WARNS
    ]


def mib(size: int) -> str:
    """Return a size as text in MiB, rounded up."""
    return f"{math.ceil(size / MIB)} MiB"


def collides(paths: Iterable[str]) -> str | None:
    """Return a path that is both a file and the folder of another, or None."""
    known = set(paths)
    for path in known:
        for folder in PurePosixPath(path).parents:
            if str(folder) in known:
                return str(folder)
    return None
