"""Appending to the log of a run that nobody owns: what operators and services do from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.kernel.step_run import caller_of
from perdure.model.event import Draft, seal, tail_of
from perdure.model.filter import RunFilter
from perdure.model.status import EventType, Status, next_status
from perdure.model.write import Append, Change
from perdure.runtime.errands import report
from perdure.store.catalog.demand import FOR_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from perdure.model.run import Message, RunRow
    from perdure.store.base import Store

_PAGE: Final = 500


def appending(
    store: Store, row: RunRow, kind: EventType, detail: bytes, commit_id: int, wake_at: int | None,
    note: str | None = None,
) -> Append | None:  # fmt: skip
    """Return the append of an event at the place where the log is known to end; None where there is no log any more."""
    tail = store.load(row.id, -1)
    if not tail:
        return None  # purged since the row was read
    now = store.now()
    after = next_status(Status(row.status), kind)
    draft = Draft(kind, now, state=f"{row.status}>{after}", detail=detail)
    events = seal(row.id, tail_of(tail[-1]), (draft,), row.epoch, commit_id)
    tell = _report(store, row.id, now) if after.is_terminal else None
    change = Change(row.status, row.epoch, after, row.epoch, None, wake_at, row.inbox_n, note, now, tell)
    return Append(row.id, events, change)


def _report(store: Store, run_id: str, now: int) -> Message | None:
    started = store.load(run_id, 0, 1)
    caller = caller_of(started[0]) if started else None
    return None if caller is None else report(caller, run_id, now)


def parked_for_code(store: Store, versions: Collection[int]) -> list[RunRow]:
    """Return runs that are parked because the code of these versions could not be run. Blocks."""
    found: list[RunRow] = []
    before = None
    while True:
        rows = store.list(RunFilter(statuses=(Status.PARKED.value,), before=before, limit=_PAGE))
        found += [row for row in rows if row.version_id in versions and (row.detail or "").startswith(FOR_CODE)]
        if len(rows) < _PAGE:
            return found
        before = (rows[-1].created_at, rows[-1].id)


def unparking(store: Store, versions: Collection[int], worker_id: str, take_id: Callable[[], int]) -> list[Append]:
    """Return what lets runs go on whose code can be run again. Blocks."""
    facts = msgspec.json.encode({"worker": worker_id, "reason": "the code of its version can be run again"})
    writes = [
        appending(store, row, EventType.RUN_UNPARKED, facts, take_id(), store.now())
        for row in parked_for_code(store, versions)
    ]
    return [write for write in writes if write is not None]
