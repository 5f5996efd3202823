"""Checks the database that a URL names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from urllib.parse import urlsplit

from perdure.errors import UsageError
from perdure.verify.evidence import Evidence
from perdure.verify.examination import Report, examine

_ALIASES = {"postgresql": "postgres", "mariadb": "mysql"}
"""Schemes that name a reader by another of its names."""


def verify(url: str, acknowledged: Iterable[str] = (), *, slack_us: int | None = None) -> Report:
    """Check every invariant of the data in the database that ``url`` names, in one snapshot. Changes nothing.

    Args:
        url: ``sqlite:///file.db``, ``postgresql://...`` or ``mysql://...``.
        acknowledged: ids of runs whose start was confirmed to a caller.
        slack_us: microseconds by which workers' clocks may have been ahead of the database's, where limits of queues
            are checked. 0 if all workers and the server were on one machine whose clock nobody has set. None: as far as
            clocks of machines may drift apart.

    Raises:
        UsageError: there is no such database, it is not one of this program, or it cannot be read now.
        SchemaTooNew: a newer release has migrated it.
    """
    with opened(url) as evidence:
        return examine(evidence, acknowledged, slack_us)


def opened(url: str) -> AbstractContextManager[Evidence]:
    """Lend the rows of the database that ``url`` names.

    Raises:
        UsageError: see `verify`; or there is no reader for the URL's scheme, or its driver is not installed.
        SchemaTooNew: a newer release has migrated it.
    """
    try:
        scheme = urlsplit(url).scheme.partition("+")[0].lower()
    except ValueError as error:
        message = f"not a database URL: {error}"
        raise UsageError(message) from None
    name = _ALIASES.get(scheme, scheme)
    try:
        module = import_module(f"perdure.verify.readers.{name}") if name.isidentifier() else None
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("perdure.verify"):
            message = f"{scheme}:// needs a driver: pip install 'perdure[{name}]'"
            raise UsageError(message) from None
        module = None
    if module is None:
        message = f"{scheme or 'no scheme'}: verify reads sqlite:///file.db, postgresql://... and mysql://..."
        raise UsageError(message)
    lent: AbstractContextManager[Evidence] = module.opened(url)
    return lent
