"""A run that its creator executes: created and claimed in one transaction, it begins once that is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perdure.model.write import Committed

if TYPE_CHECKING:
    import asyncio

    from perdure.model.write import Create, Outcome
    from perdure.runtime.host import Host


class Adopter(Protocol):
    """The worker."""

    host: Host

    def arrived(self, run_id: str) -> None:
        """Note that a run is no longer on its way to here."""
        ...

    def adopt(self, create: Create) -> None:
        """Execute a run this worker has just created and claimed."""
        ...


class Adoption:
    """Waits for the record of such a run."""

    __slots__ = ("future", "worker")

    def __init__(self, worker: Adopter, future: asyncio.Future[Outcome]) -> None:
        self.worker: Adopter = worker
        self.future: asyncio.Future[Outcome] = future

    def settled(self, write: Create, outcome: Outcome) -> None:
        """Begin to execute, then tell the caller of the start."""
        self.worker.host.reserved -= 1
        self.worker.arrived(write.row.id)
        if not self.future.done():
            self.future.set_result(outcome)
        if type(outcome) is Committed:
            self.worker.adopt(write)
