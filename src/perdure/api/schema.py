"""The SQL of the schema, for people who apply it themselves."""

from __future__ import annotations

from perdure.errors import UsageError
from perdure.store.base import adapted, backend_of
from perdure.store.migrate import migrations, script


def schema_script(url: str, *, after: int = 0) -> str:
    """Return the SQL that brings a database of the URL's kind from migration ``after`` to this release.

    Raises:
        UsageError: no backend of this kind has migrations.
    """
    backend = backend_of(url)
    try:
        known = migrations(backend)
    except OSError:
        known = ()
    if not known:
        message = f"there are no migrations for {backend}"
        raise UsageError(message, hint="expected sqlite:///file.db")
    return adapted(url, script(backend, after=after))
