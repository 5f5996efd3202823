"""The checkpoint: a named milestone of a run, shown wherever the run is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.kernel.marker import Marker
from perdure.kernel.scope import body
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Checkpoint(Marker):
    """A named milestone with optional data."""

    kind = "checkpoint"
    event = EventType.CHECKPOINT_REACHED


def checkpoint(name: str, data: Any = None) -> Awaitable[None]:
    """Record that the run has reached ``name``, with optional ``data``.

    Await it to go on only once it is recorded; without ``await`` it is recorded in its turn.

    Raises:
        UsageError: called outside a workflow body, or with an empty name.
        CodecError: ``data`` cannot be stored exactly.
    """
    return body("checkpoint").mark(Checkpoint, name, data, store_none=False)
