"""Workers: one row per process start, whose lease is the lease of all runs it owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.run import Heartbeat, lost_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.model.run import RunRow, WorkerRow


class Leases:
    """The leases of workers.

    Args:
        runs: all runs by id; it only looks at who owns them.
    """

    def __init__(self, runs: Mapping[str, RunRow]) -> None:
        self._runs = runs
        self._workers: dict[str, WorkerRow] = {}

    def workers(self) -> Iterable[WorkerRow]:
        """Return all workers."""
        return self._workers.values()

    def is_live(self, worker_id: str) -> bool:
        """Whether a worker may claim, and keeps what it has."""
        worker = self._workers.get(worker_id)
        return worker is not None and worker.state == "live"

    def gone_since(self, worker_id: str) -> int | None:
        """Return when the lease of a worker has ended that is known to be gone; None for any other."""
        worker = self._workers.get(worker_id)
        return None if worker is None or worker.state == "live" else worker.expires_at

    def register(self, worker: WorkerRow) -> None:
        """Insert a worker."""
        self._workers.setdefault(worker.id, worker)

    def heartbeat(self, worker_id: str, lease_us: int, now: int) -> Heartbeat:
        """Extend or end a live worker's lease and say what it owns."""
        if not self.is_live(worker_id):
            return Heartbeat(alive=False, owned={})
        self._workers[worker_id] = self._workers[worker_id]._replace(
            state="live" if lease_us > 0 else "left", heartbeat_at=now, expires_at=now + max(lease_us, 0)
        )
        return Heartbeat(lease_us > 0, self.owned(worker_id))

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return run id to (epoch, inbox_n) of what a worker owns."""
        return {row.id: (row.epoch, row.inbox_n) for row in self._runs.values() if row.owner == worker_id}

    def sweep(self, now: int) -> list[str]:
        """Mark workers whose lease has ended as dead, forget those that own nothing, return the newly dead.

        An owner without any row gets one here, as dead.
        """
        dead = [worker.id for worker in self._workers.values() if worker.state == "live" and worker.expires_at <= now]
        for worker_id in dead:
            self._workers[worker_id] = self._workers[worker_id]._replace(state="dead")
        owners = {row.owner for row in self._runs.values() if row.owner is not None}
        for owner in owners - set(self._workers):
            self._workers[owner] = lost_worker(owner, now)
            dead.append(owner)
        for worker in list(self._workers.values()):
            if worker.state != "live" and worker.id not in owners:
                del self._workers[worker.id]
        return sorted(dead)
