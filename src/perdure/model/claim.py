"""Taking ownership of a run: what a worker asks for, and what the claim appends to the log.

Claiming is an append like any other, so after it the old owner's next append collides. Everything here is pure;
a store calls `decide` inside its claim transaction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.model.code import UNBOUND
from perdure.model.event import Draft, Event, seal
from perdure.model.status import EventType, Status, next_status
from perdure.model.write import Append, Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.run import RunRow

TAIL_EVENTS = 24
"""How many events from the end of a log a claim looks at: enough to count deaths."""


_CLAIM = EventType.RUN_CLAIMED  # to ask an enumeration for a member is dear
_CLAIMED: str = EventType.RUN_CLAIMED.value
_PARK: str = EventType.RUN_PARKED.value
_RUNNING: str = Status.RUNNING.value
_PARKED: str = Status.PARKED.value


class ClaimRequest(NamedTuple):
    """Who claims, and what it can serve."""

    worker_id: str
    queues: tuple[str, ...]
    codes: tuple[str, ...]
    """What the worker has the code of (`perdure.model.code`); it never takes another run."""
    limit: int
    take_over: bool = True
    """Also take runs whose owner is marked dead."""
    only: str | None = None
    """Take this run and no other, whatever its queue."""
    shares: tuple[int, ...] = ()
    """How much of ``limit`` each of the queues has for itself; what it does not use is for the first that can."""


class Claimant(NamedTuple):
    """The facts a claim records."""

    worker_id: str
    python: str
    """Minor version of the interpreter, such as ``3.12``."""
    max_deaths: int
    """Claims in a row with nothing recorded between, after which a run is parked."""


class Claimed(msgspec.Struct, frozen=True):
    """A run that was just claimed, or parked instead because it kills its workers."""

    row: RunRow
    """As it was before the claim, but for the version that it is bound to by it."""
    append: Append
    recent: tuple[Event, ...]
    """The end of the log before the claim, in order: at most `TAIL_EVENTS` events."""
    deaths: int
    parked: bool
    bound: tuple[int, str] | None = None
    """Version and label that the run, which was bound to none, is bound to by this claim."""
    returned: bool = False
    """It was only taken from a worker that is gone, for whoever has its code."""


class Claims(NamedTuple):
    """What a claim took, and whether it would have taken more."""

    taken: list[Claimed]
    held: bool = False
    """Runs may have been left because a limit of their queue is reached: look again when a run has ended."""
    open_at: int | None = None
    """When a rate that is used up lets the next run be claimed."""


_NO_PROGRESS = frozenset(
    {EventType.CANCEL_REQUESTED, EventType.YIELD_REQUESTED, EventType.STEP_HEARTBEAT, EventType.STEP_RETURNED}
)
"""Events that take a run no further."""


def count_deaths(recent: Sequence[Event]) -> int:
    """Count the claims at the end of a log after which nothing was recorded: workers that died of the run.

    A claim that ended in an orderly hand-back is not a death, unless the run was handed back because it was about to
    end its worker; any progress, or a person's decision to let the run go on, starts the count again.
    """
    deaths, handed_back = 0, False
    for event in reversed(recent):
        if event.type == EventType.RUN_CLAIMED:
            deaths += not handed_back
            handed_back = False
        elif event.type in (EventType.RUN_RELEASED, EventType.RUN_WAITING):
            handed_back = fatal_reason(event) is None
        elif event.type in _NO_PROGRESS:
            continue
        else:
            break
    return deaths


def fatal_reason(released: Event) -> str | None:
    """Return what went wrong, if a run was handed back because of something that no worker would survive."""
    facts = msgspec.json.decode(released.detail) if released.detail else {}
    return str(facts.get("reason")) if facts.get("fatal") else None


def decide(
    row: RunRow, recent: tuple[Event, ...], who: Claimant, now: int, commit_id: int,
    binding: tuple[int, str] | None = None,
) -> Claimed:  # fmt: skip
    """Return the append that claims ``row`` for ``who``, or parks it as poison.

    Args:
        row: the run as the claim transaction sees it.
        recent: the last events of its log, in order, at least one.
        who: the claiming worker.
        now: the database's clock.
        commit_id: id of the append.
        binding: version and label of the worker's code, for a run that is bound to none.
    """
    bound = binding if row.version_id == UNBOUND else None
    deaths = count_deaths(recent)
    poison = deaths >= who.max_deaths
    epoch = row.epoch + 1
    if poison:
        reason: str | None = _poison(deaths, recent[-1])
        after, owner = _PARKED, None
        draft = Draft(
            EventType.RUN_PARKED.value, now, state=_change(row.status, EventType.RUN_PARKED),
            detail=msgspec.json.encode({"worker": who.worker_id, "reason": reason, "help": f"perdure retry {row.id}"}),
        )  # fmt: skip
    else:
        reason, after, owner = None, _RUNNING, who.worker_id
        draft = claim_draft(who, row.status, row.workflow_version if bound is None else bound[1], now)
    change = Change(row.status, row.epoch, after, epoch, owner, None, 0, reason, now)
    append = Append(row.id, seal(row.id, recent[-1], (draft,), epoch, commit_id), change)
    if bound is not None and not poison:
        row = row._replace(version_id=bound[0], workflow_version=bound[1])
    return Claimed(row, append, recent, deaths, poison, bound if not poison else None)


def park(
    row: RunRow, recent: tuple[Event, ...], worker_id: str, now: int, commit_id: int, *, reason: str, remedy: str
) -> Claimed:
    """Return the append that parks a run which is due, because no worker can run it.

    Args:
        row: the run as the claim transaction sees it.
        recent: the last events of its log, in order, at least one.
        worker_id: the worker that found out.
        now: the database's clock.
        commit_id: id of the append.
        reason: what stands in the way, in one line.
        remedy: what to do.
    """
    facts = {"worker": worker_id, "reason": reason, "help": remedy}
    draft = Draft(_PARK, now, state=_change(row.status, EventType.RUN_PARKED), detail=msgspec.json.encode(facts))
    append = Append(
        row.id, seal(row.id, recent[-1], (draft,), row.epoch, commit_id),
        Change(row.status, row.epoch, _PARKED, row.epoch, None, None, 0, reason, now),
    )  # fmt: skip
    return Claimed(row, append, recent, 0, parked=True)


def hand_over(row: RunRow, recent: tuple[Event, ...], now: int, commit_id: int) -> Claimed:
    """Return the append that takes a run from a worker that is gone and lets anybody claim it who has its code.

    It counts as the death of that worker, as a take-over would have counted.

    Args:
        row: the run as the claim transaction sees it; somebody owns it.
        recent: the last events of its log, in order, at least one.
        now: the database's clock.
        commit_id: id of the append.
    """
    facts = {"wake_at": now, "reason": f"its worker {row.owner} is gone", "fatal": True}
    state = f"{row.status}>{next_status(Status(row.status), EventType.RUN_RELEASED)}"
    draft = Draft(EventType.RUN_RELEASED.value, now, state=state, detail=msgspec.json.encode(facts))
    change = Change(row.status, row.epoch, Status.PENDING.value, row.epoch, None, now, row.inbox_n, None, now)
    append = Append(row.id, seal(row.id, recent[-1], (draft,), row.epoch, commit_id), change)
    return Claimed(row, append, recent, 0, parked=False, returned=True)


def claim_draft(who: Claimant, status: str, version: str, now: int) -> Draft:
    """Return the event by which ``who`` claims a run that is in ``status``."""
    return Draft(_CLAIMED, now, state=_change(status, _CLAIM), detail=_facts(who, version))


@lru_cache(maxsize=1024)
def _facts(who: Claimant, version: str) -> bytes:
    return msgspec.json.encode({"worker": who.worker_id, "version": version, "python": who.python})


@lru_cache(maxsize=64)
def _change(status: str, kind: EventType) -> str:
    before = Status(status)
    return f"{before}>{next_status(before, kind)}"


def _poison(deaths: int, last: Event) -> str:
    reason = fatal_reason(last) if last.type == EventType.RUN_RELEASED else None
    return f"poison: {deaths} workers died of it in a row" + (f"; the last of {reason}" if reason else "")
