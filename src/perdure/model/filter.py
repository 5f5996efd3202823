"""What a listing asks for."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from perdure.model.code import parts_of
from perdure.model.queue import QueueChange, QueueRow
from perdure.model.run import WorkerRow


class RunFilter(NamedTuple):
    """Conditions that all hold; an empty one holds always. Newest first, by (``created_at``, ``id``)."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    version: str | None = None
    """The label that a run was bound by."""
    queue: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    since: int | None = None
    """Created at or after."""
    until: int | None = None
    """Created before."""
    before: tuple[int, str] | None = None
    """Only what comes after this (``created_at``, ``id``) in the order of the listing."""
    limit: int = 100
    version_ids: tuple[int, ...] = ()
    """Bound to one of these versions."""


class QueueStats(NamedTuple):
    """How many runs of a queue that need one code are due, and since when the oldest is."""

    queue: str
    code: str
    due: int
    oldest_wake_at: int

    @property
    def workflow(self) -> str:
        """Name of the workflow."""
        return parts_of(self.code)[1]

    @property
    def version_id(self) -> int:
        """The version they are bound to."""
        return parts_of(self.code)[0]


class QueueState(NamedTuple):
    """The settings of a queue and what is in it."""

    settings: QueueRow
    due: int
    """Runs that could be claimed now, were there no limits."""
    later: int
    """Runs that wait for a time to come: delayed, or asleep."""
    running: int
    """Runs that are owned."""
    slots: int
    """Slots taken; 0 while the queue has no limit of concurrency."""
    starts: int
    """Claims in the present window of the rate; 0 without a rate."""
    oldest_wake_at: int | None
    """Since when the longest due run is due."""
    changes: tuple[QueueChange, ...]
    """The last changes of the settings, newest first: at most `CHANGES_SHOWN`."""


CHANGES_SHOWN = 20


class Fact(msgspec.Struct, frozen=True):
    """Something about a database, as ``doctor`` shows it."""

    name: str
    value: str
    problem: str = ""
    """What is wrong with it, and what to do; empty if nothing is."""


class StoreStats(NamedTuple):
    """Counts for ``doctor`` and metrics."""

    runs: dict[str, int]
    """Status to number of runs."""
    waiting: tuple[QueueStats, ...]
    """Due and unowned runs by queue and code."""
    workers: tuple[WorkerRow, ...]
    """Known workers, by id."""
    facts: tuple[Fact, ...]
    """What this database really is: settings given, file, schema; and what is wrong with it."""
    queues: tuple[QueueState, ...] = ()
    """Queues that have settings or runs that have not ended, by name."""
