"""The schema whose tables are read."""

from __future__ import annotations

from perdure.errors import SchemaTooNew, UsageError

KNOWN_SCHEMA = 5
"""The number of the last migration whose tables are known here. It is the same in every kind of database."""


def check_schema(place: str, last: object) -> None:
    """Refuse tables that are not those of this release.

    Args:
        place: the database, as it may be shown.
        last: the number of the last migration that was applied.

    Raises:
        SchemaTooNew: a newer release has migrated it.
        UsageError: it is not complete.
    """
    if last == KNOWN_SCHEMA:
        return
    if isinstance(last, int) and last > KNOWN_SCHEMA:
        message = f"{place} has schema {last:04d}, this release knows {KNOWN_SCHEMA:04d}"
        raise SchemaTooNew(message)
    message = f"{place}: its schema is not complete"
    raise UsageError(message, hint="run `perdure migrate`")
