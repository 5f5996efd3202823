"""What an operator wants to know: who works on a database, what nobody works on, what is wrong; and of one engine."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from perdure.api.reading import RunInfo, moment, to_info
from perdure.api.version_info import VersionUse
from perdure.api.version_use import Carriers, uses
from perdure.model.cache import CacheStats
from perdure.model.code import UNBOUND
from perdure.model.filter import Fact, QueueStats, RunFilter, StoreStats
from perdure.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from perdure.model.run import RunRow, WorkerRow
    from perdure.runtime.connection import Connection
    from perdure.store.base import Store

MOST_PARKED = 20
MOST_SKEW_S = 5.0
PATIENCE_S = 10.0
"""So long runs may be due that no live worker carries the version of: one may be about to be started for them."""


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version host as the database knows it.

    Attributes:
        id: its incarnation, new with each start.
        worker: id of the worker that started it.
        machine: where it is.
        pid: process.
        started_at: when it began.
        workflows: workflows it runs.
        versions: numbers of the versions it carries.
    """

    id: str
    worker: str
    machine: str
    pid: int
    started_at: datetime
    workflows: tuple[str, ...]
    versions: tuple[int, ...]


def to_host(row: WorkerRow) -> HostInfo:
    """Return the version host of a row."""
    return HostInfo(
        id=row.id, worker=row.parent or "", machine=row.host, pid=row.pid, started_at=moment(row.started_at),
        workflows=tuple(msgspec.json.decode(row.workflows)), versions=tuple(msgspec.json.decode(row.versions)),
    )  # fmt: skip


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, or a version host of one, as the database knows it.

    Attributes:
        id: its incarnation, new with each start.
        name: what it calls itself.
        host: machine.
        pid: process.
        state: ``live``, ``dead`` (its lease has ended) or ``left``.
        started_at: when it began.
        heartbeat_at: when it was last heard of.
        queues: queues it serves.
        workflows: workflows it has the code of.
        versions: numbers of the versions it carries.
        parent: of a version host, the id of the worker that started it; None for a worker that was deployed.
    """

    id: str
    name: str
    host: str
    pid: int
    state: str
    started_at: datetime
    heartbeat_at: datetime
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    versions: tuple[int, ...] = ()
    parent: str | None = None

    def serves(self, queue: str, workflow: str) -> bool:
        """Whether it is alive and takes such runs."""
        return self.state == "live" and queue in self.queues and workflow in self.workflows


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """Due runs that no live worker takes.

    Attributes:
        queue: their queue.
        workflow: their workflow.
        due: how many there are.
        oldest_at: since when the oldest is due.
        age_s: that in seconds.
        version: label of the version they are bound to, if it is that which no live worker carries.
    """

    queue: str
    workflow: str
    due: int
    oldest_at: datetime
    age_s: float
    version: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a database.

    Attributes:
        facts: settings really given, and what is wrong with them.
        runs: state to number of runs.
        workers: known workers and version hosts.
        unserved: due work nobody takes.
        parked: the newest runs that wait for a person.
        versions: versions, with what they are used for.
    """

    facts: tuple[Fact, ...]
    runs: dict[str, int]
    workers: tuple[WorkerInfo, ...]
    unserved: tuple[Unserved, ...]
    parked: tuple[RunInfo, ...]
    versions: tuple[VersionUse, ...] = ()


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one open engine has counted so far, in this process alone. Another process cannot read it.

    Attributes:
        log_ends: appends to logs, by whether the end of the log was known here. Each miss makes a commit ask for it:
            another process has written to the run, or the connection to the database was lost. On a file the claim of
            a run that another process started counts as one. All 0 for a database in memory: it keeps nothing twice.
        definitions: looks at what the database keeps of versions: labels and routes by which starts are bound, stored
            versions and releases that version hosts are started from. Each miss is a query; there is one per workflow
            after each change of its versions.
    """

    log_ends: CacheStats
    definitions: CacheStats


async def health(connection: Connection) -> Health:
    """Return the state of a database. Only reads."""
    stats: StoreStats = await connection.read(connection.store.stats)
    query = RunFilter(statuses=(Status.PARKED,), limit=MOST_PARKED)
    parked: list[RunRow] = await connection.read(connection.store.list, query)
    now = connection.store.now()
    workers = tuple(_worker(row, now) for row in stats.workers)
    versions: tuple[VersionUse, ...] = await connection.read(uses, connection.store, _carriers(workers))
    labels: dict[int, str] = await connection.read(_labels, connection.store, {one.workflow for one in stats.waiting})
    return Health(
        facts=(*stats.facts, _clock(now)), runs=stats.runs, workers=workers,
        unserved=tuple(filter(None, (_unserved(one, workers, labels, now) for one in stats.waiting))),
        parked=tuple(map(to_info, parked)), versions=versions,
    )  # fmt: skip


def _carriers(workers: tuple[WorkerInfo, ...]) -> dict[int, Carriers]:
    live = sorted((worker for worker in workers if worker.state == "live"), key=lambda worker: worker.name)
    found: defaultdict[int, Carriers] = defaultdict(Carriers)
    for worker in live:
        for version in worker.versions:
            known = found[version]
            if worker.parent is None:
                found[version] = known._replace(workers=(*known.workers, worker.name))
            else:
                found[version] = known._replace(hosts=(*known.hosts, worker.name))
    return found


def _labels(store: Store, workflows: set[str]) -> dict[int, str]:
    """Return the greatest label of each version of some workflows."""
    found: dict[int, str] = {}
    for workflow in workflows:
        for label in store.catalog.shelf(workflow).known.labels:
            found.setdefault(label.version_id, label.text)
    return found


async def is_served(connection: Connection, queue: str, workflow: str) -> bool:
    """Whether a live worker takes runs of this workflow from this queue."""
    stats: StoreStats = await connection.read(connection.store.stats)
    now = connection.store.now()
    return any(_worker(row, now).serves(queue, workflow) for row in stats.workers)


def _unserved(
    work: QueueStats, workers: tuple[WorkerInfo, ...], labels: Mapping[int, str], now: int
) -> Unserved | None:
    """Return what nobody works on, None if somebody does."""
    age = max(0, now - work.oldest_wake_at) / 1_000_000
    version = None
    if any(worker.serves(work.queue, work.workflow) for worker in workers):
        carried = any(work.version_id in worker.versions for worker in workers if worker.state == "live")
        if work.version_id == UNBOUND or carried or age < PATIENCE_S:
            return None
        version = labels.get(work.version_id)
    return Unserved(
        queue=work.queue, workflow=work.workflow, due=work.due, oldest_at=moment(work.oldest_wake_at), age_s=age,
        version=version,
    )  # fmt: skip


def _worker(row: WorkerRow, now: int) -> WorkerInfo:
    state = "dead" if row.state == "live" and row.expires_at <= now else row.state
    return WorkerInfo(
        id=row.id, name=row.name, host=row.host, pid=row.pid, state=state, started_at=moment(row.started_at),
        heartbeat_at=moment(row.heartbeat_at), queues=tuple(msgspec.json.decode(row.queues)),
        workflows=tuple(msgspec.json.decode(row.workflows)), versions=tuple(msgspec.json.decode(row.versions)),
        parent=row.parent,
    )  # fmt: skip


def _clock(now: int) -> Fact:
    skew = now / 1_000_000 - time.time()
    problem = "the wall clock was set; times in the log follow the database's clock" if abs(skew) > MOST_SKEW_S else ""
    return Fact("clock", f"{round(skew, 3) + 0.0:+.3f} s from the wall clock", problem)
