"""Workers: one row per process start, whose lease is the lease of all runs it owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.run import Heartbeat, lost_worker
from perdure.store.sqlite.batch import SQL, fetch

if TYPE_CHECKING:
    import apsw

    from perdure.model.run import WorkerRow


def register(connection: apsw.Connection, worker: WorkerRow) -> None:
    """Insert a worker."""
    connection.execute(SQL["insert_worker"], worker)


def heartbeat(connection: apsw.Connection, worker_id: str, lease_us: int, now: int) -> Heartbeat:
    """Extend or end a live worker's lease and say what it owns."""
    if lease_us > 0:
        connection.execute(SQL["heartbeat"], (worker_id, now, lease_us))
    else:
        connection.execute(SQL["leave"], (worker_id, now))
    alive = connection.changes() == 1
    connection.execute(SQL["note_time"], (now,))
    return Heartbeat(alive and lease_us > 0, owned(connection, worker_id) if alive else {})


def owned(connection: apsw.Connection, worker_id: str) -> dict[str, tuple[int, int]]:
    """Return run id to (epoch, inbox_n) of what a worker owns."""
    return {run_id: (epoch, inbox_n) for run_id, epoch, inbox_n in fetch(connection, "owned", worker_id)}


def is_sweep_due(connection: apsw.Connection, now: int) -> bool:
    """Whether `sweep` would change anything. A plain read: nearly always the answer is no."""
    return bool(fetch(connection, "sweep_due", now)[0][0])


def sweep(connection: apsw.Connection, now: int) -> list[str]:
    """Mark workers whose lease has ended as dead, forget those that own nothing, return the newly dead.

    An owner without any row (it started and claimed after it was forgotten) gets one here, as dead: otherwise nobody
    would ever take its runs over.
    """
    dead = [worker_id for (worker_id,) in fetch(connection, "bury", now)]
    for (owner,) in fetch(connection, "orphans"):
        connection.execute(SQL["insert_worker"], lost_worker(owner, now))
        dead.append(owner)
    connection.execute(SQL["forget"])
    return sorted(dead)
