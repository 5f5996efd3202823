"""Savepoints as SQL, for drivers that have no words of their own for them."""

from __future__ import annotations

import itertools

from perdure.guard.statement import Savepoint

_NUMBERS = itertools.count(1)


class SavepointSql:
    """The statements of one guard's savepoint. Its name is its own: MySQL forgets the first of two that share it."""

    def __init__(self) -> None:
        self._name = ""

    def texts(self, act: Savepoint) -> tuple[str, ...]:
        """Return what to execute."""
        if act is Savepoint.OPEN:
            self._name = f"perdure_{next(_NUMBERS)}"
            return (f"savepoint {self._name}",)
        release = f"release savepoint {self._name}"
        return (release,) if act is Savepoint.KEEP else (f"rollback to savepoint {self._name}", release)
