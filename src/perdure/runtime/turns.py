"""Lets runs go on together, stage by stage: those whose writes were in one transaction.

A run that goes on alone takes its stages one after the other. Where hundreds do, each stage is taken by all of them
before the next one begins, so that its code is still in the processor's caches for the second run and the last.

1. The next event on record is settled (`Participant.hear`).
2. The body runs until it waits again (`Participant.think`).
3. What it has asked for is started (`Participant.act`). The results of steps that end at once are recorded when all
   have started theirs (`perdure.runtime.tape.Outbox`).
4. A run whose body has ended ends; one that waits is idle (`Participant.rest`).

Nothing comes between the stages but those of other runs, and the order of one run's events is the same as if it were
alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from perdure.runtime.tape import Outbox

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

logger: logging.Logger = logging.getLogger("perdure.run")


class Participant(Protocol):
    """A run that takes turns."""

    id: str

    def hear(self) -> bool:
        """Settle the next event, if there is one. Whether there was."""
        ...

    def think(self) -> bool:
        """Let the body run. Whether there is a third stage."""
        ...

    def act(self) -> None:
        """Start what was asked for, stop what was given up."""
        ...

    def rest(self) -> None:
        """End, or wait."""
        ...

    def pump_soon(self) -> None:
        """Take a turn alone, in a callback of its own."""
        ...


class Turns:
    """See the module. Turns are taken in plain callbacks: no body runs inside a task of the engine's loop."""

    __slots__ = ("_due", "_loop", "join", "outbox")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.outbox: Outbox = Outbox()
        self._due: list[Participant] = []
        self.join: Callable[[Participant], None] = self._due.append
        """Have a run go on with the next `take`, which whoever calls this brings about in the same callback."""

    def join_soon(self, run: Participant) -> None:
        """Have a run go on in a callback of its own."""
        if not self._due:
            self._loop.call_soon(self.take)
        self._due.append(run)

    def take(self) -> None:
        """Let all who have joined go on. What goes wrong in one run is no matter of the others.

        Raises:
            KeyboardInterrupt, SystemExit: raised by a body or a step. The others go on alone then.
        """
        due = self._due.copy()
        self._due.clear()
        try:
            self._take(due)
        except BaseException:
            for run in due:
                run.pump_soon()
            raise

    def _take(self, due: list[Participant]) -> None:
        heard: list[Participant] = []
        for run in due:
            try:
                run.hear()
                heard.append(run)
            except Exception as error:  # noqa: BLE001 - told there
                _failed(run, error)
        ready: list[Participant] = []
        for run in heard:
            try:
                if run.think():
                    ready.append(run)
            except Exception as error:  # noqa: BLE001 - told there
                _failed(run, error)
        self.outbox.is_open = True
        try:
            for run in ready:
                try:
                    run.act()
                except Exception as error:  # noqa: BLE001 - told there
                    _failed(run, error)
        finally:
            self.outbox.close()
        for run in ready:
            try:
                run.rest()
            except Exception as error:  # noqa: BLE001 - told there
                _failed(run, error)


def _failed(run: Participant, error: Exception) -> None:
    logger.error("run %s: internal error", run.id, exc_info=error)
