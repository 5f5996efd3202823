"""`perdure.store.catalog.ground.Ground` on a database server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.store.server.dialect import L
from perdure.store.server.floors import whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.catalog.ground import Rows, Run

R = TypeVar("R")


class ServerGround(Generic[L]):
    """See the module.

    Args:
        read: does what only reads, once more if the connection is gone.
        transact: does what commits, and again after a deadlock.
    """

    def __init__(
        self,
        read: Callable[[Callable[[L], Any]], Any],
        transact: Callable[[Callable[[L], Any]], Any],
    ) -> None:
        self._read = read
        self._transact = transact

    def read(self, work: Callable[[Run], R]) -> R:
        """Do what only reads."""
        found: R = self._read(lambda link: work(_running(link)))
        return found

    def write(self, work: Callable[[Run], R]) -> R:
        """Do what writes, in one transaction."""

        def change(link: L) -> R:
            link.begin()
            result = work(_running(link))
            link.commit()
            return result

        done: R = self._transact(change)
        return done


def _running(link: L) -> Run:
    def run(*calls: tuple[Any, ...]) -> list[Rows]:
        asked = [whole(*values) if name == "levels" else (name, *values) for name, *values in calls]
        return [result.rows for result in link.many(*asked)]

    return run
