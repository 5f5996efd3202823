"""What code runs need now, and which workers have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.model.run import RunRow, WorkerRow
    from perdure.store.catalog.ground import Rows, Run

FOR_CODE: Final = "version: "
"""What the detail of a run begins with that is parked because the code of its version cannot be run."""
_MOST_CODES: Final = 10_000


class Demand(NamedTuple):
    """What runs of some queues need.

    Attributes:
        due: code to since when a run that needs it is due, or its worker is gone, in microseconds.
        later: code to when the next run that needs it will be due, where none is now.
        parked: the codes of runs that are parked because they cannot be run.
        carried: ids of the versions that live workers carry, to whether one of these was deployed with it.
    """

    due: Mapping[str, int]
    later: Mapping[str, int]
    parked: frozenset[str]
    carried: Mapping[int, bool]


def demand(run: Run, queues: Sequence[str], now: int) -> Demand:
    """Return what runs of these queues need, by one statement where none waits.

    Costs a few looks for each code that runs wait with, however many do.
    """
    due: dict[str, int] = {}
    later: dict[str, int] = {}
    (rows,) = run(("demand", tuple(queues), f"{FOR_CODE}%"))
    for what, code, _, queue in rows:
        codes = _standing(run, queue, code) if what == "waits" else ()
        if codes:
            for priority, waiting, _, head_at in run(("levels", queue, codes))[0]:
                if priority is not None and head_at is not None:
                    times = due if head_at <= now else later
                    times[waiting] = min(head_at, times.get(waiting, head_at))
    for what, code, since, _ in rows:
        if what == "bereft":
            due[code] = min(since, due.get(code, since))
    parked = frozenset(code for what, code, _, _ in rows if what == "parked")
    carriers = [(versions, parent) for what, versions, _, parent in rows if what == "carried"]
    return Demand(due, _without(later, due), parked, _carried(carriers))


def _standing(run: Run, queue: str, found: str | None) -> tuple[str, ...]:
    """Return the codes that runs of a queue wait with, of which the first one is known."""
    codes: list[str] = []
    while found is not None:
        codes.append(found)
        if len(codes) == _MOST_CODES:
            break
        found = run(("next_code", queue, found))[0][0][0]
    return tuple(codes)


def _without(later: Mapping[str, int], due: Mapping[str, int]) -> dict[str, int]:
    return {code: at for code, at in later.items() if code not in due}


def _carried(carriers: Rows) -> dict[int, bool]:
    carried: dict[int, bool] = {}
    for versions, parent in carriers:
        for version_id in msgspec.json.decode(versions):
            carried[version_id] = carried.get(version_id, False) or parent is None
    return carried


def demand_of(runs: Iterable[RunRow], workers: Iterable[WorkerRow], queues: Sequence[str], now: int) -> Demand:
    """Return the same of rows in memory."""
    known = {worker.id: worker for worker in workers}
    live = {worker.id for worker in known.values() if worker.state == "live"}
    due: dict[str, int] = {}
    later: dict[str, int] = {}
    parked: set[str] = set()
    for row in runs:
        since = row.wake_at
        if row.owner is not None and row.owner in known and row.owner not in live:
            since = row.updated_at
        if row.queue in queues and since is not None:
            times = due if since <= now else later
            times[row.code] = min(since, times.get(row.code, since))
        if row.queue in queues and row.status == "parked" and (row.detail or "").startswith(FOR_CODE):
            parked.add(row.code)
    return Demand(
        due,
        _without(later, due),
        frozenset(parked),
        _carried([(known[one].versions, known[one].parent) for one in live]),
    )
