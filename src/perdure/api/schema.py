"""The SQL of the schema, for people who apply it themselves."""

from __future__ import annotations

from perdure.store.base import backend_of, schema_of
from perdure.store.migrate import migrations, pending, script


def schema_script(url: str, *, after: int | None = None) -> str:
    """Return the SQL that brings a database to this release; empty if there is nothing to do. Runs nothing.

    Args:
        url: the database.
        after: begin after this migration, whatever the database says; by default after what it has.

    Raises:
        UsageError: no backend of this kind has migrations, or the database is not ours.
        SchemaTooNew: a newer release has migrated it.
        StoreUnavailable: it cannot be reached.
    """
    found = schema_of(url)
    backend = backend_of(url)
    if after is None:
        applied = found.applied() or []
        pending(migrations(backend), applied)
        after = len(applied)
    return found.placed(script(backend, after=after))
