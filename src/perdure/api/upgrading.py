"""What an upgrade adds to the log of a run, and how a run comes to be nobody's, so that it can be added."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.api.acting import check_time_left
from perdure.api.reading import find, moment
from perdure.errors import RunNotFound, UpgradeBusy, UsageError
from perdure.model.event import Draft, seal, tail_of
from perdure.model.run import YIELD, Message, RunRow
from perdure.model.status import EventType, Status, next_status
from perdure.model.write import Append, Change, Send, Upgrade
from perdure.runtime.history import effective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perdure.model.event import Event
    from perdure.runtime.connection import Connection

_LOOK_S: Final = 0.05
_SWEEP_S: Final = 1.0
_SPARE_US: Final = 5_000_000
"""So much longer than somebody waits for a run, nobody claims it once it was handed back."""


class Recast(NamedTuple):
    """How a run's history is to be read from now on.

    Attributes:
        renamed: recorded name of a step to the name that the code calls it by.
        from_step: id of the operation from which on everything that is recorded is dropped.
    """

    renamed: Mapping[str, str] = {}
    from_step: str | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is read in another way."""
        return bool(self.renamed) or self.from_step is not None


AS_IT_IS: Final = Recast()


class Move(NamedTuple):
    """From which version to which, and by whom.

    Attributes:
        to_version: the version.
        label: what it goes by.
        actor: who does it.
        reason: why.
        plan_id: the plan it is a part of.
        forced: what its check found was not accepted.
        version_count: the count of changes of versions that the version was found at.
        reverts: place of the upgrade in the log that is taken back.
    """

    to_version: int
    label: str
    actor: str
    reason: str
    plan_id: str | None = None
    forced: bool = False
    version_count: int | None = None
    reverts: int | None = None


def first_of(events: Sequence[Event], op: str) -> int:
    """Return the place of the first record of an operation, or of one inside it.

    Raises:
        UsageError: there is none.
    """
    for event in effective(events):
        if event.op is not None and (event.op == op or event.op.startswith(f"{op}.")):
            return event.seq
    message = f"run {events[0].run_id!r} has recorded no operation {op!r}"
    raise UsageError(message, hint="perdure history shows what it has recorded")


def operations(events: Sequence[Event]) -> int:
    """Return how many operations have an answer on record."""
    return len({event.op for event in events if event.op is not None})


def upgrade_of(
    connection: Connection, row: RunRow, events: Sequence[Event], move: Move, recast: Recast, commit_id: int
) -> Upgrade:  # fmt: skip
    """Return the write that binds a run anew. A failed run is retried with it, and one that is parked goes on.

    Args:
        connection: the database.
        row: the run, owned by nobody.
        events: its log.
        move: where it goes.
        recast: how its history is to be read.
        commit_id: of the append.

    Raises:
        UsageError: the run has ended for good, or lacks the operation from which on its history is to be dropped.
    """
    now = connection.store.now()
    tail, added = tail_of(events[-1]), list[Any]()
    status = Status(row.status)
    if status is Status.FAILED:
        reopened = _reopening(connection, row, events[-1], move, now)
        added += seal(row.id, tail, (reopened,), row.epoch, commit_id)
        tail, status = tail_of(added[-1]), Status.PENDING
    elif status.is_terminal:
        message = f"run {row.id!r} is {status}; what has ended is not upgraded"
        raise UsageError(message, hint="perdure fork makes a new run of its history")
    after = next_status(status, EventType.RUN_UPGRADED)
    draft = Draft(
        EventType.RUN_UPGRADED, now, state=f"{status}>{after}", detail=_facts(row, events, move, recast)
    )  # fmt: skip
    added += seal(row.id, tail, (draft,), row.epoch + 1, commit_id)
    change = Change(
        row.status, row.epoch, after, row.epoch + 1, None, _wake_at(row, events, after, now), row.inbox_n, None, now
    )  # fmt: skip
    return Upgrade(
        Append(row.id, tuple(added), change), row.version_id, move.to_version, move.label, move.plan_id,
        forced=move.forced, actor=move.actor, reason=move.reason, version_count=move.version_count,
    )  # fmt: skip


def _facts(row: RunRow, events: Sequence[Event], move: Move, recast: Recast) -> bytes:
    facts: dict[str, Any] = {
        "actor": move.actor, "reason": move.reason, "from": row.workflow_version, "to": move.label,
        "from_version": row.version_id, "to_version": move.to_version, "forced": move.forced,
    }  # fmt: skip
    if move.plan_id is not None:
        facts["plan"] = move.plan_id
    if move.reverts is not None:
        facts["reverts"] = move.reverts
    if recast.renamed:
        facts["renamed"] = dict(recast.renamed)
    if recast.from_step is not None:
        facts |= {"from_step": recast.from_step, "dropped_from": first_of(events, recast.from_step)}
    return msgspec.json.encode(facts)


def _reopening(connection: Connection, row: RunRow, failed: Event, move: Move, now: int) -> Draft:
    check_time_left(connection, row.id, failed)
    facts = msgspec.json.decode(failed.detail) if failed.detail else {}
    detail = {"actor": move.actor, "reason": move.reason, "failed_seq": failed.seq, **facts}
    state = f"{Status.FAILED}>{Status.PENDING}"
    return Draft(EventType.RUN_REOPENED, now, state=state, detail=msgspec.json.encode(detail))


def _wake_at(row: RunRow, events: Sequence[Event], after: Status, now: int) -> int | None:
    """Return when the run goes on: what it has begun, at once, for other code may wait for something else."""
    if after is not Status.PENDING:
        return None
    begun = any(event.type == EventType.RUN_CLAIMED for event in events)
    return now if begun or row.wake_at is None else row.wake_at


async def free(
    connection: Connection, row: RunRow, actor: str, reason: str, wait_s: float, sent: Callable[[str], None]
) -> RunRow:  # fmt: skip
    """Ask whoever owns a run to hand it back, and wait until it is nobody's, or its owner is dead.

    Args:
        connection: the database.
        row: the run.
        actor: who asks.
        reason: why.
        wait_s: how long to wait.
        sent: told of the message that was sent.

    Raises:
        UpgradeBusy: it is still inside a step.
        RunNotFound: it was purged meanwhile.
    """
    if row.status != Status.RUNNING:
        return row
    until = connection.store.now() + int(wait_s * 1_000_000) + _SPARE_US
    detail = msgspec.json.encode({"actor": actor, "reason": reason, "until": until, "epoch": row.epoch})
    await connection.write(Send(Message(row.id, 0, YIELD, connection.store.now(), detail)))
    sent(row.id)
    deadline, sweep_at = time.monotonic() + wait_s, 0.0
    while True:
        found = await find(connection, row.id)
        if not isinstance(found, RunRow):
            raise RunNotFound(row.id)
        if found.status != Status.RUNNING:
            return found
        now = time.monotonic()
        if now >= sweep_at:
            sweep_at = now + _SWEEP_S
            if await _is_bereft(connection, found):
                return found
        if now >= deadline:
            raise UpgradeBusy(await _busy(connection, found))
        await asyncio.sleep(_LOOK_S)


async def _is_bereft(connection: Connection, row: RunRow) -> bool:
    """Whether a run's owner is dead, which it stays."""
    await connection.read(connection.store.sweep)
    owner = await _owner(connection, row)
    return owner is None or owner.state != "live"


async def _owner(connection: Connection, row: RunRow) -> Any:
    stats = await connection.read(connection.store.stats)
    return next((worker for worker in stats.workers if worker.id == row.owner), None)


async def _busy(connection: Connection, row: RunRow) -> str:
    owner = await _owner(connection, row)
    ends = "" if owner is None else f" ({moment(owner.expires_at).astimezone():%H:%M})"
    return f"{row.id} is inside a step until its lease ends{ends}; not upgraded."
