"""The row by which a worker is known to others."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import msgspec

from perdure.model.run import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.runtime.host import Host


def live_row(worker_id: str, name: str, queues: Iterable[str], host: Host, parent: str | None) -> WorkerRow:
    """Return the row of a worker that begins its life.

    Args:
        worker_id: its id.
        name: its name, for people.
        queues: queues it serves.
        host: what it carries, and the database's clock.
        parent: the worker that started it as a version host; None for one that was deployed.
    """
    now = host.store.now()
    return WorkerRow(
        worker_id, name, socket.gethostname(), os.getpid(), "live", now, now, now + host.settings.lease_us,
        _json(queues), _json(sorted(host.workflows)),
        _json(sorted(version.id for version in host.carried.versions.values())), parent,
    )  # fmt: skip


def _json(values: Iterable[object]) -> str:
    return msgspec.json.encode(list(values)).decode()
