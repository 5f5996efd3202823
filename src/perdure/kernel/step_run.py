"""A run that executes one step of another run: a step whose name is routed to another queue than its run is on.

It is started with the workflow, the version, and the arguments of the call, so that whoever can execute the run can
execute its step. Its first event says whose step it is; its body is that one call. See ADR 0035.
"""

from __future__ import annotations

import sys
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import Diverged
from perdure.kernel.definition import WorkflowDefinition
from perdure.kernel.kinds.step import AsyncStep, StepOperation, SyncStep
from perdure.model.status import EventType

if TYPE_CHECKING:
    from perdure.codec.signature import CallSignature
    from perdure.kernel.definition import StepDefinition
    from perdure.model.event import Event

_LONGEST_ID = 255


class Caller(msgspec.Struct, frozen=True):
    """Whose step a run executes.

    Attributes:
        run: id of the run that called the step.
        op: the operation that the call is.
        place: where the step is found; see `place_of`.
    """

    run: str
    op: str
    place: str

    @property
    def key(self) -> str:
        """Key of the step: the same as if its run executed it itself."""
        return f"{self.run}:{self.op}"


class _Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    step_of: Caller
    bound_by: str | None = None


class StepRun(WorkflowDefinition):
    """The workflow of such a run.

    Args:
        workflow: the workflow of the run that called.
        started: the event that started the run.
    """

    def __init__(self, workflow: WorkflowDefinition, started: Event) -> None:
        super().__init__(self._call, workflow.name, workflow.semver, workflow.extent)
        self.caller: Caller = _caller(started)
        self._step_name = str(started.name)
        self._workflow = workflow

    @cached_property
    def signature(self) -> CallSignature:
        """How the step's arguments and its result are stored.

        Raises:
            Diverged: the code has no such step any more.
        """
        definition: StepDefinition = self._step.definition
        return definition.signature

    @cached_property
    def _step(self) -> AsyncStep[..., Any] | SyncStep[..., Any]:
        place = self.caller.place
        found = _at(place, self._workflow)
        if found is None or found.name != self._step_name:
            there = "nothing" if found is None else f"step {found.name!r}"
            text = f"the run executes step {self._step_name!r}, and the code has {there} at {place}"
            module = place.partition(":")[0]
            if module and module not in sys.modules:
                text += f"; the workflow's module does not import {module} where it begins"
            raise Diverged(text, expected=f"step {self._step_name!r}", found=there)
        return found

    async def _call(self, *args: Any, **kwargs: Any) -> Any:
        return await self._step.aio(*args, **kwargs)


def caller_of(started: Event) -> Caller | None:
    """Return whose step a run executes that begins with this event; None for a run of a workflow."""
    if started.kind != StepOperation.kind or started.type != EventType.RUN_STARTED:
        return None
    return _caller(started)


def _caller(started: Event) -> Caller:
    return msgspec.json.decode(started.detail or b"", type=_Detail).step_of


def executed_by(workflow: WorkflowDefinition, started: Event) -> WorkflowDefinition:
    """Return what a run of a workflow executes that begins with this event: the workflow, or one step of its code."""
    return workflow if caller_of(started) is None else StepRun(workflow, started)


def detail_of(caller: Caller, *, is_bound: bool) -> bytes:
    """Return the detail of the event by which such a run begins, bound to its caller's version or to none."""
    return msgspec.json.encode(_Detail(caller, "caller" if is_bound else None))


def place_of(step: StepDefinition, workflow: WorkflowDefinition) -> str | None:
    """Return where a step is found by whoever has the workflow's code; None if it cannot be found by its name.

    A step in the module of the workflow is named without it: the module may go by another name elsewhere.
    """
    function = step.function
    module = "" if function.__module__ == workflow.function.__module__ else function.__module__
    place = f"{module}:{function.__qualname__}"
    found = _at(place, workflow)
    return place if found is not None and found.definition is step else None


def _at(place: str, workflow: WorkflowDefinition) -> AsyncStep[..., Any] | SyncStep[..., Any] | None:
    module, _, path = place.partition(":")
    found: Any = sys.modules.get(module or workflow.function.__module__)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, AsyncStep | SyncStep) else None


def id_of(key: str, number: int) -> str:
    """Return the id of the run that executes a step.

    Args:
        key: key of the step.
        number: number of the attempt that the run counts as: an operator's retry of the caller starts another run.
    """
    run_id = key if number == 1 else f"{key}~{number}"
    if len(run_id) <= _LONGEST_ID:
        return run_id
    digest = blake2b(run_id.encode(), digest_size=16).hexdigest()
    return f"{run_id[: _LONGEST_ID - len(digest) - 1]}~{digest}"
