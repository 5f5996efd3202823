"""Where figures are taken: databases by name, the floor beside them, and what was really recorded.

A kind of database is a file in ``bench/sites`` with ``open_site``, named as the backend.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perdure.errors import UsageError
from perdure.model.url import shown_url
from perdure.store.base import backend_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.bench.figure import Marks

SCRATCH = "perdure-bench-"
"""What the name of a measurement's own folder begins with."""


class Bare(Protocol):
    """A bare connection to a table of one column, without anything of ours in between."""

    def insert(self, row: bytes) -> None:
        """Commit one row, durably."""
        ...

    def insert_all(self, rows: Sequence[bytes]) -> None:
        """Commit many rows in one transaction."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class Site(Protocol):
    """See the module. Databases are empty when their name is used for the first time."""

    folder: Path
    """A folder of this measurement, for files."""
    marks: Marks
    """What the figures taken here are held against."""

    def url(self, name: str) -> str:
        """Return the URL of the database with a name."""
        ...

    def count(self, name: str, kind: str) -> int:
        """Count the events of a kind that were really recorded, by other means than ours."""
        ...

    def stored(self, name: str) -> tuple[int, int]:
        """Return rows and bytes of the log and of the rows of runs, with their indexes and what is dead in them."""
        ...

    def bare(self) -> Bare:
        """Connect to the floor's own table."""
        ...

    def clear(self) -> None:
        """Remove all databases of this measurement."""
        ...


def open_site(url: str, folder: Path) -> Site:
    """Return the place that a database's URL names, for one measurement with files in ``folder``.

    Raises:
        UsageError: nothing can be measured there.
    """
    backend = backend_of(url)
    try:
        module = import_module(f"perdure.bench.sites.{backend}")
    except ModuleNotFoundError:
        message = f"{shown_url(url)}: cannot be measured"
        raise UsageError(message, hint="write --db sqlite:///file.db") from None
    site: Site = module.open_site(url, folder)
    return site
