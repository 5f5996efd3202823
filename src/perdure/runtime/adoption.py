"""A run that is created and claimed in one transaction: executed by its creator once it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perdure.model.write import Committed

if TYPE_CHECKING:
    from perdure.model.write import Create, Outcome
    from perdure.runtime.connection import Answer


class Parent(Protocol):
    """The worker that creates a run to execute it."""

    def created(self, create: Create, *, recorded: bool) -> None:
        """Take the run, now that it is recorded; or forget it."""
        ...


class Adoption:
    """Waits for the record of such a run, and tells the caller of the start."""

    __slots__ = ("answer", "parent")

    def __init__(self, parent: Parent, answer: Answer) -> None:
        self.parent: Parent = parent
        self.answer: Answer = answer

    def settled(self, write: Create, outcome: Outcome) -> None:
        """Take the writer's answer."""
        try:
            self.parent.created(write, recorded=type(outcome) is Committed)
        finally:
            self.answer.settled(write, outcome)
