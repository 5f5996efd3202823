"""The one place where a host's worker is made: an ordinary engine that carries certain versions and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.api.engine import Engine
from perdure.hosting.files import Files
from perdure.runtime.carried import Carried, Version

if TYPE_CHECKING:
    from perdure.api.decorators import Workflow
    from perdure.runtime.connection import Connection
    from perdure.runtime.hosts.job import Job


class HostedEngine(Engine):
    """An engine as a host needs it.

    It registers nothing: it is told what it carries. It says whether it has anything to do, and leaves within the time
    that is left.

    Args:
        job: what the host is told.
        workflows: those that were loaded, by the id of the version that each is.
        tree: the folder that the release was unpacked into.
    """

    def __init__(self, job: Job, workflows: Mapping[int, Workflow[Any, Any]], tree: Path) -> None:
        super().__init__(job.url, list(workflows.values()), **{"create": False, "migrate": False, **job.settings})
        self._parent = job.parent
        versions = {
            entry.workflow: Version(entry.version_id, entry.label, entry.config)
            for entry in job.entries
            if entry.version_id in workflows
        }
        self._carried = Carried(versions, Files(tree, job.manifest), is_host=True)

    async def _carry(self, connection: Connection) -> Carried:  # noqa: ARG002 - it is told what it carries
        return self._carried

    @property
    def is_idle(self) -> bool:
        """Whether no run is active here. Runs that only wait are handed back when the host leaves."""
        worker = self._worker
        return worker is None or len(worker.host.runs) == len(worker.host.idle)

    def leave_within(self, grace_s: float) -> None:
        """Let steps in flight finish within this time when it closes."""
        self._settings = msgspec.structs.replace(self._settings, grace_us=int(grace_s * 1_000_000))

    @property
    def grace_s(self) -> float:
        """How long steps in flight may go on when it closes."""
        return self._settings.grace_us / 1_000_000


def open_engine(job: Job, workflows: Mapping[int, Workflow[Any, Any]], tree: Path) -> HostedEngine:
    """Return the engine of a host, not yet open."""
    return HostedEngine(job, workflows, tree)
