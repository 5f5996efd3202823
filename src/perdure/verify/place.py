"""Where the evidence is: chosen by the scheme of the URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from perdure.verify import file, postgres
from perdure.verify.evidence import Evidence
from perdure.verify.examination import Report, examine

_OPENERS: dict[str, Callable[[str], AbstractContextManager[Evidence]]] = {
    "postgres": postgres.opened,
    "postgresql": postgres.opened,
}


def verify(url: str, acknowledged: Iterable[str] = ()) -> Report:
    """Check every invariant of the data that ``url`` names. Changes nothing.

    Args:
        url: ``sqlite:///file.db`` or ``postgresql://...``.
        acknowledged: ids of runs whose start was confirmed to a caller.

    Raises:
        UsageError: there is no such database, or it is not one of this program.
        SchemaTooNew: a newer release has migrated it.
    """
    scheme = urlsplit(url).scheme.partition("+")[0].lower()
    with _OPENERS.get(scheme, file.opened)(url) as evidence:
        return examine(evidence, acknowledged)
