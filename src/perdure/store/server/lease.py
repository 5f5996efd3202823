"""Workers: one row per process start, whose lease is the lease of all runs it owns. The server's clock decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.run import Heartbeat, lost_worker

if TYPE_CHECKING:
    from perdure.model.run import WorkerRow
    from perdure.store.server.dialect import Link, Result


def register(link: Link, worker: WorkerRow) -> None:
    """Insert a worker."""
    link.execute("insert_worker", *worker)


def heartbeat(link: Link, worker_id: str, lease_us: int) -> Heartbeat:
    """Extend or end a live worker's lease and say what it owns."""
    change = ("heartbeat", lease_us, worker_id) if lease_us > 0 else ("leave", worker_id)
    beaten, owned = link.many(change, ("owned", worker_id))
    if beaten.affected != 1:
        return Heartbeat(alive=False, owned={})
    return Heartbeat(lease_us > 0, as_owned(owned))


def as_owned(result: Result) -> dict[str, tuple[int, int]]:
    """Return run id to (epoch, inbox_n)."""
    return {run_id: (epoch, inbox_n) for run_id, epoch, inbox_n in result.rows}


def sweep(link: Link, now: int) -> list[str]:
    """Mark workers whose lease has ended as dead, forget those that own nothing, return the newly dead.

    An owner without any row gets one here, as dead: otherwise nobody would ever take its runs over. Each worker is
    marked by a statement of its own, which decides by itself: it may have sent a heartbeat meanwhile.
    """
    dead = []
    for row in link.execute("expired").rows:
        worker_id = str(row[0])
        if link.execute("bury", worker_id).affected == 1:
            dead.append(worker_id)
    for row in link.execute("orphans").rows:
        owner = str(row[0])
        if link.execute("insert_worker", *lost_worker(owner, now)).affected == 1:
            dead.append(owner)
    link.execute("forget")
    return sorted(dead)
