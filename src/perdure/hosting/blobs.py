"""Where the contents of a version's files come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perdure.store.base import StoreOptions, open_store
from perdure.version.manifest import Blob, make_blob

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from perdure.runtime.hosts.job import Job


class Blobs(Protocol):
    """Gives stored contents."""

    def fetch(self, wanted: Collection[str]) -> Iterable[Blob]:
        """Give those of these SHA-256 that there are."""
        ...


class FolderOfBlobs:
    """Contents as files, each named by its SHA-256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, wanted: Collection[str]) -> Iterable[Blob]:
        """Give those of these SHA-256 that there are."""
        for sha256 in wanted:
            file = self._folder / sha256
            if file.is_file():
                yield make_blob(file.read_bytes())._replace(sha256=sha256)


class DatabaseOfBlobs:
    """Contents as the database of the runs keeps them."""

    def __init__(self, job: Job) -> None:
        self._url = job.url

    def fetch(self, wanted: Collection[str]) -> Iterable[Blob]:
        """Give those of these SHA-256 that there are."""
        store = open_store(self._url, StoreOptions(create=False, migrate=False, read_only=True))
        store.open()
        try:
            yield from store.catalog.blobs(wanted)
        finally:
            store.close()


def open_blobs(job: Job) -> Blobs:
    """Return where the contents of a job's files are."""
    return FolderOfBlobs(Path(job.blobs)) if job.blobs else DatabaseOfBlobs(job)
