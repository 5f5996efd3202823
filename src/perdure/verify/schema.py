"""The schema whose tables are read."""

from __future__ import annotations

from perdure.errors import SchemaTooNew, UsageError


def check_schema(place: str, last: object, known: int) -> None:
    """Refuse tables that are not those of this release.

    Args:
        place: the database, as it may be shown.
        last: the number of the last migration that was applied.
        known: the number of the last one whose tables are known.

    Raises:
        SchemaTooNew: a newer release has migrated it.
        UsageError: it is not complete.
    """
    if last == known:
        return
    if isinstance(last, int) and last > known:
        message = f"{place} has schema {last:04d}, this release knows {known:04d}"
        raise SchemaTooNew(message)
    message = f"{place}: its schema is not complete"
    raise UsageError(message, hint="run `perdure migrate`")
