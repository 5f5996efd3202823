"""What an operator can do to a run. Each act is an event of its log, with actor and reason."""

from __future__ import annotations

import getpass
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.api.reading import find, possible, row_and_log
from perdure.codec.exception import read_failure
from perdure.errors import RunNotFound, UsageError
from perdure.kernel.kinds.step import sent_by
from perdure.model.run import CANCEL, Message, RunRow, Tombstone
from perdure.model.status import EventType, Status
from perdure.model.write import Append, Closed, Committed, Missing, Purge, Send
from perdure.runtime.closing import note_of
from perdure.runtime.errands import GIVEN_UP
from perdure.runtime.history import summarise
from perdure.runtime.ids import uuid7
from perdure.runtime.outside import appending

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.model.write import Outcome
    from perdure.runtime.connection import Connection

_UNBEGUN = frozenset({Status.PENDING, Status.PARKED, Status.PAUSED})


def _detail(actor: str | None, reason: str | None, **facts: Any) -> bytes:
    return msgspec.json.encode({"actor": actor or default_actor(), "reason": reason or "", **facts})


def default_actor() -> str:
    """Return the name of the system user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


async def _append(
    connection: Connection, row: RunRow, kind: EventType, detail: bytes, wake_at: int | None, note: str | None = None
) -> Outcome:
    """Append an event from outside, at the place the log is known to end."""
    write: Append | None = await connection.read(
        appending, connection.store, row, kind, detail, connection.commit_ids.take(), wake_at, note
    )
    return Missing(None) if write is None else await connection.write(write)


async def cancel(connection: Connection, run_id: str, *, actor: str | None, reason: str | None) -> bool:
    """Record a request to cancel; True unless the run had ended before. Raises `RunNotFound`."""
    detail = _detail(actor, reason, request=uuid7())  # by which a repeat of the same request is known
    for _ in range(100):
        row = await find(connection, run_id)
        if isinstance(row, Tombstone) or Status(row.status).is_terminal:
            return False
        begun = row.epoch > 0 and row.status == Status.PENDING
        if row.status in _UNBEGUN and not begun:
            # Its body is not running and need not run for this: no worker is needed.
            if isinstance(
                await _append(connection, row, EventType.RUN_CANCELLED, detail, None, note_of(reason)), Committed
            ):
                await _stop_steps(connection, run_id)
                return True
            continue
        outcome = await connection.write(Send(Message(run_id, 0, CANCEL, connection.store.now(), detail)))
        if isinstance(outcome, Committed):
            return True
        if isinstance(outcome, Closed | Missing):
            return False
    message = f"run {run_id!r} changes too fast to be cancelled"
    raise UsageError(message, hint="try again")


async def _stop_steps(connection: Connection, run_id: str) -> None:
    """Ask the runs to stop that execute steps of a run which was cancelled without a worker."""
    events = await connection.read(connection.store.load, run_id)
    for sent in summarise(events).sent.values():
        with suppress(RunNotFound):  # it was purged, or never started
            await cancel(connection, sent_by(sent).run, actor=f"run {run_id}", reason=GIVEN_UP)


async def retry(connection: Connection, run_id: str, *, actor: str | None, reason: str | None) -> str:
    """Let a failed or parked run go on; completed steps keep their results. Returns one line that says what was done.

    Raises:
        RunNotFound: no such run, or purged.
        UsageError: the run is neither failed nor parked, or it failed because its time limit was over.
    """
    row, events = await row_and_log(connection, run_id)
    if row.status == Status.PARKED:
        outcome = await _append(connection, row, EventType.RUN_UNPARKED, _detail(actor, reason), connection.store.now())
        told = f"run {run_id} goes on where it was parked"
    elif row.status == Status.FAILED:
        failed = next(event for event in reversed(events) if event.type == EventType.RUN_FAILED)
        check_time_left(connection, run_id, failed)
        facts = msgspec.json.decode(failed.detail) if failed.detail else {}
        detail = _detail(actor, reason, failed_seq=failed.seq, **facts)
        outcome = await _append(connection, row, EventType.RUN_REOPENED, detail, connection.store.now())
        told = _told(run_id, facts, events)
    else:
        message = f"run {run_id!r} is {row.status}; only a failed or parked run can be retried"
        raise UsageError(message, run_id=run_id)
    if not isinstance(outcome, Committed):
        message = f"run {run_id!r} was changed by somebody else meanwhile"
        raise UsageError(message, hint="look at it again", run_id=run_id)
    return told


def check_time_left(connection: Connection, run_id: str, failed: Event) -> None:
    """Refuse to retry a run whose time limit is over.

    Raises:
        UsageError: it is.
    """
    if read_failure(failed.payload or b"", connection.codec).type_name.endswith("RunTimedOut"):
        message = f"run {run_id!r} ended because its time was over, which a retry cannot give back"
        raise UsageError(message, run_id=run_id, hint="start it again under another id")


def _told(run_id: str, facts: dict[str, Any], events: list[Event]) -> str:
    causes = facts.get("cause_seqs")
    if not causes:
        return f"run {run_id} goes on; its body raised by itself, so no step is tried again: it needs other code"
    names = " and ".join(sorted({repr(event.name) for event in events if event.seq in causes}))
    subject = f"step {names} is" if len(causes) == 1 else f"steps {names} are"
    return f"run {run_id} goes on: {subject} tried again, completed steps keep their results"


async def purge(connection: Connection, run_id: str, *, actor: str | None, reason: str | None) -> None:
    """Delete a finished run's history, unless that is done already; its id stays taken.

    Raises:
        RunNotFound: no such run.
        UsageError: the run has not ended.
    """
    write = Purge(possible(run_id), connection.store.now(), actor or default_actor(), reason)
    outcome = await connection.write(write)
    if isinstance(outcome, Missing) and outcome.tombstone is None:
        raise RunNotFound(run_id)
    if isinstance(outcome, Closed):
        message = f"run {run_id!r} is {outcome.status}; only a finished run can be purged"
        raise UsageError(message, run_id=run_id, hint="cancel it first")
