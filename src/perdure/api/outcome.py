"""How a run's last event becomes a result or an exception for whoever waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.exception import decode_exception, read_failure
from perdure.errors import RunCancelled, RunFailed, RunParked, RunTerminated, RunTimedOut
from perdure.model.status import EventType

if TYPE_CHECKING:
    from perdure.codec.base import Codec
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.event import Event
    from perdure.model.run import RunRow

_COMPLETED: str = EventType.RUN_COMPLETED.value


def outcome_of(row: RunRow, last: Event, codec: Codec, definition: WorkflowDefinition | None) -> Any:
    """Return the result that ``last`` records, or raise what it tells.

    Raises:
        RunFailed, RunTimedOut, RunCancelled, RunTerminated, RunParked: as recorded.
    """
    if last.type == _COMPLETED:
        returns = Any if definition is None else definition.signature.returns
        return codec.decode(last.payload or b"null", returns)
    if last.type == EventType.RUN_FAILED:
        raise _failure(row, last, codec)
    detail: dict[str, Any] = msgspec.json.decode(last.detail) if last.detail else {}
    reason = str(detail.get("reason") or "")
    if last.type == EventType.RUN_CANCELLED:
        raise RunCancelled(row.id, reason=reason)
    if last.type == EventType.RUN_TERMINATED:
        raise RunTerminated(row.id, reason=reason)
    raise RunParked(row.id, reason=reason or str(row.detail or ""), hint=str(detail.get("help") or "") or None)


def _failure(row: RunRow, last: Event, codec: Codec) -> RunFailed | RunTimedOut:
    data = last.payload or b""
    cause = decode_exception(data, codec, run_id=row.id)
    if isinstance(cause, RunTimedOut):
        return cause
    told = read_failure(data, codec)
    error = RunFailed(row.id, type_name=told.type_name, message=told.message, traceback_text=told.traceback_text)
    error.__cause__ = cause
    if told.traceback_text:
        # The cause was raised elsewhere and has no traceback of its own here, so nothing else would say where.
        error.add_note(f"\nIt was raised here:\n\n{told.traceback_text}")
    return error
