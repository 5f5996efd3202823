"""Following a run while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.status import EventType

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.runtime.connection import Connection


class Progress:
    """What a run has done so far.

    Attributes:
        steps: steps completed.
        failures: attempts of steps that failed.
        checkpoint: the last named milestone.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self._run_id = run_id
        self._seen = 0
        self.steps: int = 0
        self.failures: int = 0
        self.checkpoint: str | None = None

    async def refresh(self) -> bool:
        """Read what is new in the log; True if there was anything."""
        store = self._connection.store
        events: list[Event] = await self._connection.read(store.load, self._run_id, self._seen)
        for event in events:
            self.steps += event.type == EventType.STEP_COMPLETED
            self.failures += event.type in (EventType.STEP_ATTEMPT_FAILED, EventType.STEP_FAILED)
            if event.type == EventType.CHECKPOINT_REACHED:
                self.checkpoint = event.name
            self._seen = event.seq
        return bool(events)
