"""The one place where a host's worker is made: an ordinary engine that carries certain versions and no others."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from perdure.api.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.api.decorators import Workflow
    from perdure.runtime.hosts.job import Job


class HostedEngine(Engine):
    """An engine as a host needs it: it says whether it has anything to do, and leaves within the time that is left."""

    @property
    def is_idle(self) -> bool:
        """Whether no run is active here. Runs that only wait are handed back when the host leaves."""
        worker = self._worker
        return worker is None or len(worker.host.runs) == len(worker.host.idle)

    def leave_within(self, grace_s: float) -> None:
        """Let steps in flight finish within this time when it closes."""
        self._settings = dataclasses.replace(self._settings, grace_us=int(grace_s * 1_000_000))

    @property
    def grace_s(self) -> float:
        """How long steps in flight may go on when it closes."""
        return self._settings.grace_us / 1_000_000


def open_engine(job: Job, workflows: Mapping[int, Workflow[Any, Any]]) -> HostedEngine:
    """Return the engine of a host, not yet open.

    Args:
        job: what the host is told.
        workflows: those that were loaded, by the id of the version that each is.
    """
    found: Iterable[Workflow[Any, Any]] = workflows.values()
    return HostedEngine(job.url, list(found), **{"create": False, "migrate": False, **job.settings})
