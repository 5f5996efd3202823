"""The published value: what a run lets others see of it while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.kernel.marker import Marker
from perdure.kernel.scope import body
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Value(Marker):
    """A value under a name; the last one recorded counts."""

    kind = "value"
    event = EventType.VALUE_PUBLISHED


def publish(name: str, value: Any) -> Awaitable[None]:
    """Publish ``value`` under ``name``, to be read with ``run.value(name)``.

    Await it to go on only once it is recorded; without ``await`` it is recorded in its turn.

    Raises:
        UsageError: called outside a workflow body, or with an empty name.
        CodecError: ``value`` cannot be stored exactly.
    """
    return body("publish").mark(Value, name, value, store_none=True)
