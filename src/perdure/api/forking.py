"""A fork: a new run that begins with what another one has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.api.acting import default_actor
from perdure.api.reading import row_and_log
from perdure.api.starting import checked_id
from perdure.api.upgrading import first_of
from perdure.errors import IdConflict, UpgradeRefused, UsageError, VersionPurged
from perdure.model.event import EMPTY_TAIL, Draft, draft_of, sealed, tail_of
from perdure.model.run import RunRow
from perdure.model.status import TERMINAL, EventType, Status
from perdure.model.write import Committed, Create, Existing, Failed
from perdure.replay.history import record
from perdure.runtime.history import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.api.operations import Operations
    from perdure.model.event import Event
    from perdure.runtime.connection import Connection

_TRIES: Final = 20


class Bound(NamedTuple):
    """The version of the new run."""

    version_id: int
    label: str
    version_count: int


async def fork(
    engine: Operations, run_id: str, *, id: str | None, from_step: str | None, to: str | None, actor: str | None,
    reason: str | None,
) -> str:  # fmt: skip
    """Make a new run of the history of another one; see `perdure.Engine.fork`. Returns its id."""
    connection = engine.connection
    new_id = checked_id(id)
    for _ in range(_TRIES):
        row, events = await row_and_log(connection, run_id)
        kept = kept_of(row, events, from_step)
        target = None if to is None else await engine.checker.target(connection, row.workflow, to)
        bound = await _same(connection, row) if target is None else Bound(*target[1:])
        facts = {
            "actor": actor or default_actor(), "reason": reason or "", "copied_from": run_id, "events": len(kept),
            "version": bound.label, "bound_by": "fork" if target is None else "version",
        }  # fmt: skip
        create = create_of(connection, row, kept, new_id, bound, facts, fresh=id is None)
        if target is not None:
            history = record(create.row, create.events, connection.codec)
            verdict = await engine.checker.check_stored(connection, history, target)
            if not verdict.is_safe:
                raise UpgradeRefused(f"{verdict}; not forked.", verdict=verdict)
        outcome = await connection.write(create)
        if isinstance(outcome, Committed):
            engine.queue_changed()
            return new_id
        if isinstance(outcome, Existing):
            raise IdConflict(new_id, f"run id {new_id!r} belongs to another run")
        if isinstance(outcome, Failed):
            raise outcome.error
    message = f"the versions of run {run_id!r} change too fast for it to be forked"
    raise UsageError(message, hint="try again")


async def _same(connection: Connection, row: RunRow) -> Bound:
    catalog = connection.store.catalog
    count = await connection.read(catalog.count)
    definition = await connection.read(catalog.definition, row.version_id) if row.version_id else None
    if definition is not None and definition.status == "purged":
        raise VersionPurged(f"{row.workflow}@{row.workflow_version} was purged; its code is gone.")
    return Bound(row.version_id, row.workflow_version, count)


def kept_of(row: RunRow, events: Sequence[Event], from_step: str | None) -> Sequence[Event]:
    """Return what is copied: what stands before an operation.

    By default that is all but the way a run has ended, and of a failed run what stands before the step that failed.

    Raises:
        UsageError: it has recorded no such operation.
    """
    last = events[-1]
    if from_step is None and row.status == Status.FAILED:
        facts = msgspec.json.decode(last.detail) if last.detail else {}
        from_step = facts.get("cause_op")
    if from_step is not None:
        return events[: first_of(events, from_step) - 1]
    return events[:-1] if (last.state or "").rpartition(">")[2] in TERMINAL else events


def create_of(
    connection: Connection, row: RunRow, kept: Sequence[Event], new_id: str, bound: Bound, facts: dict[str, Any],
    *, fresh: bool,
) -> Create:  # fmt: skip
    """Return the write that records a copy of a run. Its events keep their times, on which what is replayed depends."""
    now = connection.store.now()
    status = next((one.state.rpartition(">")[2] for one in reversed(kept) if one.state), Status.PENDING)
    commit_id, copied, tail = connection.commit_ids.take(), list[Any](), EMPTY_TAIL
    for event in kept:
        copied.append(sealed(new_id, event.seq, draft_of(event), event.at, event.epoch, commit_id, tail.chain))
        tail = tail_of(copied[-1])
    draft = Draft(
        EventType.RUN_FORKED, now, state=f"{status}>{Status.PENDING}", detail=msgspec.json.encode(facts)
    )  # fmt: skip
    at, epoch = max(now, tail.at), kept[-1].epoch
    copied.append(sealed(new_id, tail.seq + 1, draft, at, epoch, commit_id, tail.chain))
    new = row._replace(
        id=new_id, workflow_version=bound.label, version_id=bound.version_id, status=Status.PENDING.value, wake_at=at,
        owner=None, epoch=epoch, inbox_n=summarise(kept).consumed, detail=None, created_at=at, updated_at=at,
        deadline_at=None if row.deadline_at is None else at + row.deadline_at - row.created_at,
    )  # fmt: skip
    tags = tuple(sorted(msgspec.json.decode(row.tags).items())) if row.tags else ()
    return Create(new, tuple(copied), fresh, tags, None, bound.version_count)
