"""Rows that are derived from the log: the run, its messages, the worker that owns it."""

from __future__ import annotations

from typing import NamedTuple

from perdure.model.code import UNBOUND, code_of


class RunRow(NamedTuple):
    """The run as listings and claims see it. The field order is the column order of the table ``run``.

    Derived from the log: it changes only in the transaction of the append that implies the change.
    """

    id: str
    workflow: str
    workflow_version: str
    status: str
    queue: str
    priority: int
    """Higher is sooner."""
    wake_at: int | None
    """When a worker may next claim the run; None while it is owned, parked, paused or terminal."""
    owner: str | None
    """Worker incarnation that owns the run; None while nobody does."""
    epoch: int
    """Number of claims so far."""
    inbox_n: int
    """Number of messages ever sent to the run."""
    deadline_at: int | None
    """When the run is to fail as timed out, if it has a time limit."""
    input_digest: int
    """64-bit digest of workflow name and input: what makes two starts of one id the same start."""
    tags: str | None
    """JSON object of text to text."""
    detail: str | None
    """One line for people: why it is parked, how it failed."""
    created_at: int
    updated_at: int
    partition_key: str | None = None
    """Whose run it is, as far as its queue is concerned: what is fair and limited by key."""
    version_id: int = UNBOUND
    """The version it is bound to; `UNBOUND` while there is none. ``workflow_version`` is the label it was bound by."""

    @property
    def code(self) -> str:
        """What a worker must have to run it."""
        return code_of(self.workflow, self.version_id)


class Tombstone(NamedTuple):
    """What a purged run leaves behind: enough to keep its id taken. A row of the table ``request``."""

    run_id: str
    workflow: str
    input_digest: int
    status: str
    """The terminal state it was purged in."""
    purged_at: int
    actor: str | None
    reason: str | None


CANCEL = "cancel"
"""Kind of the message that asks a run to stop."""
YIELD = "yield"
"""Kind of the message that asks for a run to be handed back."""
RETURNED = "returned"
"""Kind of the message that says that the run which executes a step has ended."""


class Message(NamedTuple):
    """Something sent to a run from outside; waits in the table ``inbox`` until its owner takes it in."""

    run_id: str
    n: int
    """1, 2, 3, ... per run: the value of ``run.inbox_n`` after it was sent."""
    kind: str
    """``cancel``, ``yield``, ``returned``, later ``signal``, ``pause``, ..."""
    sent_at: int
    detail: bytes | None
    """JSON object: actor, reason, ..."""


class WorkerRow(NamedTuple):
    """One process start that may own runs. The field order is the column order of the table ``worker``."""

    id: str
    """Unique per process start, never a host or pod name."""
    name: str
    host: str
    pid: int
    state: str
    """``live``, ``dead`` (its lease ended) or ``left`` (it said good-bye)."""
    started_at: int
    heartbeat_at: int
    expires_at: int
    queues: str
    """JSON array of the queues it serves."""
    workflows: str
    """JSON array of the workflows it can run."""
    versions: str = "[]"
    """JSON array of the ids of the versions it carries."""
    parent: str | None = None
    """The worker that started it to carry them; None for one that was deployed."""


def lost_worker(owner: str, now: int) -> WorkerRow:
    """Return the row of an owner of runs that has none: dead, so that its runs are taken over."""
    return WorkerRow(owner, owner, "", 0, "dead", now, now, now, "[]", "[]")


class Heartbeat(NamedTuple):
    """What a worker learns from its heartbeat."""

    alive: bool
    """False: its row is no longer live. It must drop all its runs."""
    owned: dict[str, tuple[int, int]]
    """Run id to (epoch, inbox_n) of every run the database says it owns."""
