"""Markers: facts a body puts into its own log, such as a checkpoint or a published value.

The event is the whole effect. A marker may be awaited (then it is recorded before the body goes on) or not (then it
is recorded in its turn, before anything the body asks for later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

from perdure.kernel.operation import Operation
from perdure.model.event import Draft

if TYPE_CHECKING:
    from perdure.kernel.operation import Port
    from perdure.kernel.requests import Requests
    from perdure.model.event import Event
    from perdure.model.status import EventType


class Marker(Operation):
    """One event, appended at once, that settles with None."""

    __slots__ = ("payload",)
    event: ClassVar[EventType]

    def __init__(self, run: Requests, op_id: str, name: str, payload: bytes | None) -> None:
        super().__init__(run, op_id, name)
        self.payload: bytes | None = payload

    def start(self, port: Port) -> None:
        port.record(Draft(self.event, port.now(), self.id, self.kind, self.name, payload=self.payload))

    def settle(self, event: Event) -> None:  # noqa: ARG002 - that it was recorded says all
        self.future.set_result(None)

    @property
    def content(self) -> int | None:
        return crc32(self.payload or b"")

    def could_be(self, event: Event) -> bool:
        return event.payload == self.payload
