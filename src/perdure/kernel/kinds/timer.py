"""The timer: ``asyncio.sleep``, ``asyncio.timeout`` and ``loop.call_later`` in a body.

The smallest kind, and the example to follow. Its request needs no row: the due time follows from logical time.
Its record, ``timer_fired``, is appended when the database's clock has reached the due time, never before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.kernel.operation import Operation
from perdure.model.event import Draft
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from perdure.kernel.operation import Port
    from perdure.kernel.requests import Requests
    from perdure.model.event import Event


class Timer(Operation):
    """A callback at a logical time. Also the handle that asyncio cancels."""

    __slots__ = ("_args", "_callback", "_context", "due")
    kind = "timer"

    def __init__(
        self,
        run: Requests,
        op_id: str,
        due: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        super().__init__(run, op_id, "sleep")
        self.due: int = due
        self._callback = callback
        self._args = args
        self._context = context

    def start(self, port: Port) -> None:
        port.wake(self, self.due)

    def fired(self, now: int) -> Draft:
        return Draft(EventType.TIMER_FIRED, now, self.id, self.kind, self.name)

    def settle(self, event: Event) -> None:  # noqa: ARG002 - that it was recorded says all
        self.run.loop.call_soon(self._callback, *self._args, context=self._context)

    @property
    def content(self) -> int | None:
        return self.due

    def could_be(self, event: Event) -> bool:
        return event.at >= self.due

    def when(self) -> float:
        """Return the due time in seconds, as asyncio's handles do."""
        return self.due / 1_000_000

    def cancel(self) -> None:
        """Give the timer up. Its record, should it already be on the way, is ignored."""
        self.run.abandon(self)

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self.run.is_abandoned(self)
