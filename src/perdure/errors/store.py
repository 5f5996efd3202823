"""What the database refused, or did not do."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors.root import PerdureError


class StoreError(PerdureError):
    """The database refused, failed, or holds something unexpected."""

    code = "store"


class StoreUnavailable(StoreError):
    """The database cannot be reached now; the same call may succeed later.

    Attributes:
        unknown: True when a write may or may not have been committed, and reading our own ids did not tell.
    """

    code = "store_unavailable"
    default_hint = "check that the database runs and can be reached; it is safe to try again"

    def __init__(
        self,
        text: str = "",
        *,
        unknown: bool = False,
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.unknown = unknown


class StoreCorrupt(StoreError):
    """Stored data breaks an invariant; nothing was guessed from it."""

    code = "store_corrupt"
    default_hint = "run `perdure verify` for the full list"


class SchemaTooNew(StoreError):
    """The database was migrated by a newer release than this one."""

    code = "schema_too_new"
    default_hint = "upgrade perdure in this environment"


class BlobsMissing(StoreError):
    """Internal: a release is registered before all of its files are stored.

    Args:
        sha256s: what is missing, by the SHA-256 of its bytes.
    """

    code = "blobs_missing"

    sha256s: tuple[str, ...]

    def __init__(self, sha256s: Iterable[str]) -> None:
        self.sha256s = tuple(sha256s)
        super().__init__(f"{len(self.sha256s)} files of the release are not stored")


class StoreConflict(StoreError):
    """Internal: an append found its place in the log taken. Users see `LeaseLost` instead."""

    code = "store_conflict"
