"""A run that is created and claimed in one transaction: executed by its creator once it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perdure.model.write import Committed

if TYPE_CHECKING:
    import asyncio

    from perdure.model.write import Create, Outcome


class Parent(Protocol):
    """The worker that creates a run to execute it."""

    def created(self, create: Create, *, recorded: bool) -> None:
        """Take the run, now that it is recorded; or forget it."""
        ...


class Adoption:
    """Waits for the record of such a run, and tells the caller of the start."""

    __slots__ = ("future", "parent")

    def __init__(self, parent: Parent, future: asyncio.Future[Outcome]) -> None:
        self.parent: Parent = parent
        self.future: asyncio.Future[Outcome] = future

    def settled(self, write: Create, outcome: Outcome) -> None:
        """Take the writer's answer."""
        if not self.future.done():
            self.future.set_result(outcome)
        self.parent.created(write, recorded=type(outcome) is Committed)
