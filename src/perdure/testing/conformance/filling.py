"""What the parts about queues have in common: filling a queue, claiming from it, ending its runs."""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING

from perdure.model.claim import ClaimRequest, Claims
from perdure.model.status import EventType
from perdure.model.write import SetQueue
from perdure.testing.author import Author, claims_for
from perdure.testing.conformance.contract import SECOND, accept

if TYPE_CHECKING:
    from perdure.model.claim import Claimed
    from perdure.model.filter import QueueState
    from perdure.store.base import Store

_ids = count(secrets.randbits(60))


def change(queue: str = "default", *, declared: bool = False, **values: int | None) -> SetQueue:
    """Return a change of a queue's settings."""
    return SetQueue(queue, tuple(values.items()), 5, "ada", "because", next(_ids), declared)


def add(store: Store, *run_ids: str, key: str | None = None, priority: int = 0, age: float = 0, queue: str = "default",
        workflow: str = "order") -> None:  # fmt: skip
    """Create runs that are due since ``age`` seconds."""
    now = store.now()
    for run_id in run_ids:
        author = Author(run_id, now)
        create = author.create(
            queue=queue, workflow=workflow, priority=priority, wake_at=now - round(age * SECOND), partition_key=key
        )
        accept(store, create)


def claims(store: Store, limit: int = 10, worker_id: str = "w1") -> Claims:
    """Claim and return the whole answer."""
    found = store.claim(ClaimRequest(worker_id, ("default",), ("0 order",), limit), claims_for(worker_id))
    assert found is not None
    return found


def ids(claimed: list[Claimed]) -> list[str]:
    """Return the ids of the claimed runs."""
    return [one.row.id for one in claimed]


def end(store: Store, *claimed: Claimed, kind: EventType = EventType.RUN_COMPLETED, wake_at: int | None = None) -> None:
    """Let runs leave their owner."""
    for one in claimed:
        author = Author(one.row.id, store.now())
        author.follow(one)
        accept(store, author.move(kind, wake_at=wake_at))


def state_of(store: Store, name: str = "default") -> QueueState:
    """Return the state of a queue that must be there."""
    (state,) = (one for one in store.stats().queues if one.settings.name == name)
    return state
