"""Checks the database that a URL names, whatever keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from urllib.parse import urlsplit

from perdure.errors import UsageError
from perdure.verify.examination import Report, examine

_READERS = {"sqlite": "file", "postgres": "postgres", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}


def verify(url: str, acknowledged: Iterable[str] = ()) -> Report:
    """Check every invariant of the data in the database that ``url`` names. Changes nothing.

    Args:
        url: names it.
        acknowledged: ids of runs whose start was confirmed to a caller.

    Raises:
        UsageError: it is not there, or no database of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    scheme = urlsplit(url).scheme.partition("+")[0].lower()
    reader = _READERS.get(scheme)
    if reader is None:
        message = f"{scheme or 'no scheme'}: verify reads {', '.join(sorted(_READERS))}"
        raise UsageError(message)
    try:
        module = import_module(f"perdure.verify.{reader}")
    except ModuleNotFoundError as error:
        message = f"{scheme}:// needs a driver: pip install 'perdure[{reader}]'"
        raise UsageError(message) from error
    with module.opened(url) as evidence:
        return examine(evidence, acknowledged)
