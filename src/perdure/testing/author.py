"""Writes the log of one run the way an engine does: it knows the tail it believes in, and nothing else."""

from __future__ import annotations

import json
import secrets
from itertools import count
from typing import TYPE_CHECKING

from perdure.model.claim import Claimant, Claimed, decide
from perdure.model.event import EMPTY_TAIL, Draft, Event, Tail, seal, tail_of
from perdure.model.run import Message, RunRow, WorkerRow
from perdure.model.status import EventType, Status, next_status
from perdure.model.write import Append, Change, Create, Purge, Send, Upgrade

if TYPE_CHECKING:
    from perdure.store.base import Decide

_commit_ids = count(secrets.randbits(62))
"""Unique among processes, as an engine's are: a store takes an append with a known id for the same append."""


class Author:
    """One run as its writer sees it.

    Every method returns a write and moves the author's own view on, as if the write had been accepted. `stale` gives
    a second author with the same view, for somebody who does not know what happens after.

    Args:
        run_id: id of the run.
        at: time of everything written, in microseconds.
    """

    def __init__(self, run_id: str, at: int) -> None:
        self.run_id = run_id
        self.at = at
        self.tail: Tail = EMPTY_TAIL
        self.status: Status | None = None
        self.epoch: int = 0

    def stale(self) -> Author:
        """Return an author who believes what this one believes now."""
        other = Author(self.run_id, self.at)
        other.tail, other.status, other.epoch = self.tail, self.status, self.epoch
        return other

    def _seal(self, *drafts: Draft) -> tuple[Event, ...]:
        events = seal(self.run_id, self.tail, drafts, self.epoch, next(_commit_ids))
        self.tail = tail_of(events[-1])
        return events

    def create(
        self,
        *,
        fresh: bool = True,
        workflow: str = "order",
        version: str = "v1",
        queue: str = "default",
        priority: int = 0,
        wake_at: int | None = None,
        tags: tuple[tuple[str, str], ...] = (),
        input_digest: int = 7,
        partition_key: str | None = None,
        deduplication_key: str | None = None,
        owner: str | None = None,
        version_id: int = 0,
        version_count: int | None = None,
    ) -> Create:
        """Return the start of the run, due now unless ``wake_at`` says when; claimed for ``owner`` if given."""
        self.status = Status.PENDING
        row = RunRow(
            id=self.run_id,
            workflow=workflow,
            workflow_version=version,
            status=Status.PENDING.value,
            queue=queue,
            priority=priority,
            wake_at=self.at if wake_at is None else wake_at,
            owner=None,
            epoch=0,
            inbox_n=0,
            deadline_at=None,
            input_digest=input_digest,
            tags=_object(tags),
            detail=None,
            created_at=self.at,
            updated_at=self.at,
            partition_key=partition_key,
            version_id=version_id,
        )
        started = Draft(EventType.RUN_STARTED.value, self.at, state=f">{Status.PENDING}", input=b"[]")
        events = self._seal(started)
        if owner is not None:
            claim = self.claimed(owner)
            events += claim.events
            row = row._replace(status=Status.RUNNING.value, owner=owner, epoch=1, wake_at=None)
        return Create(row, events, fresh, tags, deduplication_key, version_count)

    def step(
        self, result: bytes = b"null", *, op: str = "1", consumed: tuple[int, ...] = (), events: int = 1
    ) -> Append:
        """Return the record of a finished step: no change of the run row."""
        drafts = [
            Draft(
                EventType.STEP_COMPLETED.value, self.at, op, "step", "charge", 1, digest=3, input=b"[1]", payload=result
            )
            for _ in range(events)
        ]
        return Append(self.run_id, self._seal(*drafts), None, consumed)

    def move(
        self,
        kind: EventType,
        *,
        owner: str | None = None,
        wake_at: int | None = None,
        inbox_seen: int = 0,
        consumed: tuple[int, ...] = (),
        detail: str | None = None,
        facts: bytes | None = None,
    ) -> Append:
        """Return an append that changes the state as the table of transitions says."""
        before, epoch = self.status, self.epoch
        self.status = next_status(before, kind)
        if kind in (EventType.RUN_CLAIMED, EventType.RUN_UPGRADED):
            self.epoch += 1
        events = self._seal(Draft(kind.value, self.at, state=f"{before}>{self.status}", detail=facts))
        change = Change(str(before), epoch, self.status.value, self.epoch, owner, wake_at, inbox_seen, detail, self.at)
        return Append(self.run_id, events, change, consumed)

    def claimed(self, owner: str = "w1") -> Append:
        """Return a claim written by hand."""
        return self.move(EventType.RUN_CLAIMED, owner=owner)

    def upgraded(
        self, from_version: int, to_version: int, *, plan_id: str | None = None, wake_at: int | None = None,
        version_count: int | None = None,
    ) -> Upgrade:  # fmt: skip
        """Return an operator's upgrade of the run, due now unless ``wake_at`` says when."""
        facts = json.dumps({"from_version": from_version, "to_version": to_version}).encode()
        due = None if self.status is Status.PAUSED else self.at if wake_at is None else wake_at
        append = self.move(EventType.RUN_UPGRADED, wake_at=due, facts=facts)
        label = f"{to_version}.0.0"
        return Upgrade(
            append, from_version, to_version, label, plan_id, forced=False, actor="ada", reason="double charge",
            version_count=version_count,
        )  # fmt: skip

    def completed(self) -> Append:
        """Return the end of the run."""
        return self.move(EventType.RUN_COMPLETED)

    def send(self, kind: str = "cancel", detail: bytes | None = b"{}") -> Send:
        """Return a message to the run."""
        return Send(Message(self.run_id, 0, kind, self.at, detail))

    def purge(self) -> Purge:
        """Return an operator's purge."""
        return Purge(self.run_id, self.at, "ada", "asked for")

    def follow(self, claimed: Claimed) -> None:
        """Take over the view of a claim that the store has made."""
        self.tail = tail_of(claimed.append.events[-1])
        change = claimed.append.change
        if change is not None:
            self.status, self.epoch = Status(change.after), change.epoch


def worker(worker_id: str, now: int, lease_us: int = 60_000_000) -> WorkerRow:
    """Return the row of a worker that is alive for ``lease_us`` from ``now`` on."""
    return WorkerRow(worker_id, worker_id, "host", 1, "live", now, now, now + lease_us, "[]", "[]")


def claims_for(worker_id: str, max_deaths: int = 3, binding: tuple[int, str] | None = None) -> Decide:
    """Return what a worker passes to `perdure.store.base.Store.claim`.

    Args:
        worker_id: the worker.
        max_deaths: claims in a row with nothing recorded between, after which a run is parked.
        binding: version and label that runs are bound to which are bound to none.
    """
    who = Claimant(worker_id, "3.11", max_deaths)
    return lambda row, recent, now: decide(row, recent, who, now, next(_commit_ids), binding)


def _object(tags: tuple[tuple[str, str], ...]) -> str | None:
    return json.dumps(dict(tags)) if tags else None
