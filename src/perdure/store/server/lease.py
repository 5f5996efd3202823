"""Workers: one row per process start, whose lease is the lease of all runs it owns. The server's clock decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.model.run import Heartbeat, lost_worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.model.run import WorkerRow
    from perdure.store.server.dialect import Dialect, L, Link

_PASSED: Final = 5
"""So many heartbeats in a row may not ask what their worker owns, where that is a statement of its own."""
_CROWD: Final = 10
_MOST_PATIENCE: Final = 2.0


def register(link: Link, worker: WorkerRow) -> None:
    """Insert a worker."""
    link.execute("insert_worker", *worker)


def as_owned(rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[int, int]]:
    """Return run id to (epoch, inbox_n)."""
    return {run_id: (epoch, inbox_n) for run_id, epoch, inbox_n in rows}


class Beats:
    """The heartbeats of one process: one statement each while its workers have nothing to do."""

    def __init__(self) -> None:
        self._idle: dict[str, tuple[int, int]] = {}
        """Worker that owned nothing, to when that was, and how often it was not asked for since."""
        self.stirs: int = 0
        """How many claims and batches have ended, however they did: after each a worker may own more."""
        self.fleet: int = 1
        """How many workers there were lately."""

    @property
    def patience(self) -> float:
        """How many times as long as else a worker rests that has nothing to do: in a large fleet others look, too."""
        idle = bool(self._idle) and all(since == self.stirs for since, _ in list(self._idle.values()))
        return min(max(self.fleet / _CROWD, 1.0), _MOST_PATIENCE) if idle else 1.0

    def beat(self, dialect: Dialect[L], link: L, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend or end a live worker's lease and say what it owns."""
        stirs = self.stirs
        since, passed = self._idle.pop(worker_id, (-1, 0))
        # Now and then in any case: a server may still finish what it was asked for long ago.
        asks = since != stirs or passed == _PASSED
        rows = dialect.beat(link, worker_id, lease_us, owned=asks)
        if rows is None:
            return Heartbeat(alive=False, owned={})
        owned = as_owned(rows)
        if not owned and lease_us > 0:
            self._idle[worker_id] = (stirs, 0 if asks else passed + 1)
        return Heartbeat(lease_us > 0, owned)


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
