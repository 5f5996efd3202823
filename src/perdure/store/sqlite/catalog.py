"""`perdure.store.catalog.ground.Ground` on an SQLite file: its write lock is the lock of the catalog, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perdure.store.sqlite.queues import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from perdure.store.catalog.ground import Rows, Run
    from perdure.store.sqlite.session import Session

R = TypeVar("R")


class SqliteGround:
    """See the module.

    Args:
        session: gives the open connections.
        write: does something in a write transaction.
    """

    def __init__(self, session: Callable[[], Session], write: Callable[[Callable[[Session], Any]], Any]) -> None:
        self._session = session
        self._write = write

    def read(self, work: Callable[[Run], R]) -> R:
        """Do what only reads."""
        with self._session().reading() as connection:
            return work(_running(connection))

    def write(self, work: Callable[[Run], R]) -> R:
        """Do what writes, in one transaction."""
        done: R = self._write(lambda session: work(_running(session.writer)))
        return done


def _running(connection: apsw.Connection) -> Run:
    fetch = reading(connection)

    def run(*calls: tuple[Any, ...]) -> list[Rows]:
        return [list(fetch(name, *values)) for name, *values in calls]

    return run
