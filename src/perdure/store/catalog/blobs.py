"""Contents of files in a database, asked for and added in parts of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perdure.version.manifest import Blob
from perdure.version.scan import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from perdure.store.catalog.ground import Ground, Rows, Run
    from perdure.version.scan import Scan

_MOST_ASKED = 5_000
"""Hashes in one statement."""
_MOST_READ = 500
_MOST_ADDED = 200
_MOST_BYTES = 1 << 20
"""What is added in one transaction; a single content may be larger."""
T = TypeVar("T")


class SqlBlobs:
    """`perdure.store.catalog.base.Blobs` by named statements."""

    def __init__(self, ground: Ground, now: Callable[[], int]) -> None:
        self._ground = ground
        self._now = now

    def scans(self, sha256s: Collection[str]) -> dict[str, Scan]:
        """Return what is kept of these contents as source."""
        return {
            sha256: scan
            for rows in self._asked("blob_scans", sha256s, _MOST_ASKED)
            for sha256, text in rows
            if (scan := decode(text)) is not None
        }

    def missing(self, sha256s: Collection[str]) -> list[str]:
        """Return those that are not there."""
        return self._ground.read(lambda run: lacking(run, sha256s))

    def add_blobs(self, blobs: Iterable[Blob]) -> None:
        """Add contents."""
        for part in _parts(blobs):
            at = self._now()
            self._ground.write(running([("add_blob", *_row(blob, at)) for blob in part]))

    def blobs(self, sha256s: Collection[str]) -> list[Blob]:
        """Return those of these contents that are there."""
        return [
            Blob._make([*columns, None if scan is None else scan.encode()])
            for rows in self._asked("read_blobs", sha256s, _MOST_READ)
            for *columns, scan in rows
        ]

    def _asked(self, name: str, sha256s: Collection[str], most: int) -> Iterator[Rows]:
        for part in pieces(list(sha256s), most):
            yield self._ground.read(running([(name, tuple(part))]))[0]


def running(calls: Sequence[tuple[Any, ...]]) -> Callable[[Run], list[Rows]]:
    """Return work that runs these statements."""
    return lambda run: run(*calls)


def lacking(run: Run, sha256s: Collection[str]) -> list[str]:
    """Return those contents that are not there."""
    wanted = list(dict.fromkeys(sha256s))
    calls = [("blobs_there", tuple(part)) for part in pieces(wanted, _MOST_ASKED)]
    there = {row[0] for rows in (run(*calls) if calls else ()) for row in rows}
    return [sha256 for sha256 in wanted if sha256 not in there]


def pieces(values: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return values in parts of at most so many."""
    return [values[start : start + most] for start in range(0, len(values), most)]


def _row(blob: Blob, at: int) -> tuple[str | int | bytes | None, ...]:
    scan = None if blob.scan is None else blob.scan.decode()
    return (blob.sha256, blob.codec, blob.raw_size, blob.data, blob.canonical, scan, at)


def _parts(blobs: Iterable[Blob]) -> Iterator[list[Blob]]:
    """Yield contents in parts of bounded size, each in order, so that two who add the same never wait crosswise."""
    part: list[Blob] = []
    size = 0
    for blob in blobs:
        part.append(blob)
        size += len(blob.data) + len(blob.scan or b"")
        if len(part) >= _MOST_ADDED or size >= _MOST_BYTES:
            yield sorted(part, key=lambda blob: blob.sha256)
            part, size = [], 0
    if part:
        yield sorted(part, key=lambda blob: blob.sha256)
