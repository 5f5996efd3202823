"""An execution that is only looked at: it notes what the body asks for, and what is asked for with other data."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from perdure.kernel.execution import Execution
from perdure.kernel.kinds.timer import Timer
from perdure.kernel.operation import NOTES
from perdure.kernel.requests import EPOCH
from perdure.replay.shown import both

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from perdure.kernel.operation import Operation
    from perdure.model.event import Event


class Rehearsal(Execution):
    """See the module.

    Attributes:
        trace: everything the body asked for, in order, a line each.
        other_data: the first operation that was recorded with other data: its id, what was recorded, what is asked for.
    """

    ahead: Collection[Event]
    trace: list[str]
    other_data: tuple[str, str, str] | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trace = []

    def look_ahead(self, events: Iterable[Event]) -> deque[Event]:
        """Take what is recorded; whoever delivers it removes it from what this returns."""
        ahead = deque(events)
        self.ahead = ahead
        return ahead

    def register(self, operation: Operation) -> None:
        """Make an operation pending, and note it."""
        super().register(operation)
        self.trace.append(f"{operation.id} {operation.kind} {operation.name!r} {operation.content}")

    def deliver(self, event: Event) -> None:
        """Deliver an event; see `Execution.deliver`."""
        operation = self.pending.get(event.op or "")
        if operation is not None and self.other_data is None and event.type not in NOTES:
            same = (operation.kind, operation.name) == (event.kind, event.name)
            if same and not (operation.could_be(event) or (operation.kind == "step" and event.digest is None)):
                self.other_data = _difference(event, operation)
        super().deliver(event)

    def warn_of_other_arguments(self, event: Event) -> None:
        """Say nothing here: the verdict does."""

    def report(self, context: dict[str, Any]) -> None:
        """Say nothing: nobody runs this."""


def _difference(event: Event, operation: Operation) -> tuple[str, str, str]:
    what = f"{event.kind} {event.name!r} (event {event.seq})"
    if isinstance(operation, Timer):
        due = (EPOCH + timedelta(microseconds=operation.due)).isoformat(" ", "milliseconds")
        over = (EPOCH + timedelta(microseconds=event.at)).isoformat(" ", "milliseconds")
        return operation.id, f"{what} over at {over}", f"the code asks for one until {due}"
    if event.kind == "step":
        was, now = both(event.input, getattr(operation, "input", None))
        return operation.id, f"{what} with {was}", f"the code calls it with {now}"
    was, now = both(event.payload, getattr(operation, "payload", None))
    return operation.id, f"{what} with {was}", f"the code gives it {now}"
