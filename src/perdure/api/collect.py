"""Finds the workflows and steps an engine is given."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from perdure.api.decorators import Workflow
from perdure.errors import UsageError
from perdure.kernel.kinds.step import AsyncStep, SyncStep
from perdure.runtime.registry import StepRegistry, WorkflowRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable


def collect(given: Iterable[Any]) -> tuple[WorkflowRegistry, StepRegistry]:
    """Return what is registered by ``given``: workflows, or modules with workflows and steps.

    The steps a workflow names directly are registered with it, so that two of one name are found at once.

    Raises:
        UsageError: something is neither, a module has no workflow, or a name is used twice.
    """
    if isinstance(given, Workflow | ModuleType | str):
        message = f"workflows must be a list of workflows or modules, not {given!r}"
        raise UsageError(message)
    workflows, steps = WorkflowRegistry(), StepRegistry()
    for item in given:
        if isinstance(item, Workflow):
            _admit(item, workflows, steps)
        elif isinstance(item, ModuleType):
            found = [value for value in vars(item).values() if isinstance(value, Workflow)]
            if not found:
                message = f"module {item.__name__!r} has no workflow"
                raise UsageError(message, hint="decorate a function with @perdure.workflow")
            for each in found:
                _admit(each, workflows, steps)
            for value in vars(item).values():
                if isinstance(value, AsyncStep | SyncStep):
                    steps.admit(value.definition)
        else:
            message = f"{item!r} is neither a workflow nor a module"
            raise UsageError(message, hint="decorate the function with @perdure.workflow")
    return workflows, steps


def _admit(workflow: Workflow[Any, Any], workflows: WorkflowRegistry, steps: StepRegistry) -> None:
    workflows.admit(workflow.definition)
    function = workflow.definition.function
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    scope = getattr(function, "__globals__", {})
    for name in names:
        value = scope.get(name)
        if isinstance(value, AsyncStep | SyncStep):
            steps.admit(value.definition)
