"""What the code of a run may ask: its logical time, its randomness, who it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import UsageError
from perdure.kernel.kinds.checkpoint import checkpoint
from perdure.kernel.kinds.patched import patched
from perdure.kernel.kinds.value import publish
from perdure.kernel.scope import CURRENT, attempt, body
from perdure.model.duration import Duration, microseconds

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from perdure.kernel.requests import Requests
    from perdure.kernel.scope import StepScope
    from perdure.model.run import RunRow

__all__ = [
    "BodyInfo",
    "StepInfo",
    "checkpoint",
    "info",
    "now",
    "patched",
    "publish",
    "random",
    "resource",
    "sleep",
    "step_info",
    "uuid4",
]


class BodyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow body knows about its run. The same on every replay.

    Attributes:
        run_id: id of the run.
        workflow: name of the workflow.
        version: version the run is recorded with.
        attempt: claims so far, from 1: how often the run was taken up.
        epoch: ownership epoch of the last claim.
        parent: id of the parent run; None for a run without one.
        tags: tags given at the start.
        config: the configuration that is frozen with the version (``config=`` of the workflow); None for none.
        config_files: what the files of ``config_files=`` hold, by name.
    """

    run_id: str
    workflow: str
    version: str
    attempt: int
    epoch: int
    parent: str | None
    tags: dict[str, str]
    config: Any = None
    config_files: dict[str, Any] = msgspec.field(default_factory=dict)


class StepInfo:
    """What a step knows about its attempt.

    Attributes:
        run_id: id of the run that called the step.
        name: name of the step.
        key: the same for every attempt, replay and failover; hand it to outside services as idempotency key.
        attempt: number of this attempt, from 1.
        epoch: ownership epoch under which it runs.
    """

    __slots__ = ("_scope", "attempt", "epoch", "key", "name", "run_id")

    def __init__(self, scope: StepScope) -> None:
        self._scope = scope
        self.run_id: str = scope.run_id
        self.name: str = scope.name
        self.key: str = scope.key
        self.attempt: int = scope.number
        self.epoch: int = scope.epoch

    def heartbeat(self, detail: Any = None) -> None:
        """Record progress (at most once a second; more frequent calls are passed over). Works from any thread.

        Raises:
            CodecError: ``detail`` cannot be stored.
        """
        self._scope.beat(detail)


def now() -> datetime:
    """Return the run's logical time (UTC): that of the last recorded event the body has seen. The same on replay."""
    return body("now").now()


def random() -> float:
    """Return a number in [0, 1) that is the same on every replay."""
    return body("random").random.random()


def uuid4() -> UUID:
    """Return a UUID that is the same on every replay."""
    return body("uuid4").uuid4()


async def sleep(duration: Duration) -> None:
    """Sleep durably, like ``asyncio.sleep`` in a body; takes text such as ``"1h"`` too.

    Raises:
        InvalidValue: negative, not finite or too long; it is a ValueError.
    """
    span = microseconds(duration, "sleep")
    body("sleep")
    await asyncio.sleep(span / 1_000_000)


def info() -> BodyInfo:
    """Return what the run is. Raises `UsageError` outside a workflow body."""
    execution = body("info")
    row: RunRow = execution.info
    tags: dict[str, str] = msgspec.json.decode(row.tags) if row.tags else {}
    config, files = execution.frozen.settings()
    return BodyInfo(
        run_id=row.id, workflow=row.workflow, version=row.workflow_version, attempt=execution.claims,
        epoch=execution.epoch, parent=None, tags=tags, config=config, config_files=files,
    )  # fmt: skip


def resource(path: str) -> bytes:
    """Return a data file of the workflow's packages as it was when its version was registered. For bodies and steps.

    Args:
        path: from the package, such as ``prompts/order.txt``, or with the package before it.

    Raises:
        UsageError: there is no such file in the version, or this is neither a body nor a step.
    """
    found = CURRENT.get()
    if found is None:
        message = "perdure.resource() was called outside a run"
        raise UsageError(message, hint="it works in a workflow body and in a step that a run calls")
    requests: Requests = found if found.is_body else found.operation.run
    return requests.frozen.resource(path)


def step_info() -> StepInfo:
    """Return what the current step attempt is. Raises `UsageError` outside a step."""
    return StepInfo(attempt("step_info"))
