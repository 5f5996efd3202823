"""The workflows and steps an engine knows, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.kernel.definition import Definition, StepDefinition, WorkflowDefinition


def _where(definition: Definition) -> str:
    function = definition.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"


class StepRegistry(dict[str, "StepDefinition"]):
    """Step name to definition. One name means one function, else a log could not be read back."""

    def admit(self, definition: StepDefinition) -> None:
        """Take in a step when it is registered or first called.

        Raises:
            UsageError: its name is taken by another function, or it cannot be found by its name.
        """
        known = self.get(definition.name)
        if known is not None and known is not definition:
            message = f"two steps are named {definition.name!r}: {_where(known)} and {_where(definition)}"
            raise UsageError(message, hint="give one of them another name with @step(name=...)")
        definition.check_registrable()
        self[definition.name] = definition


class WorkflowRegistry(dict[str, "WorkflowDefinition"]):
    """Workflow name to definition."""

    def admit(self, definition: WorkflowDefinition) -> None:
        """Register a workflow.

        Raises:
            UsageError: its name is taken by another function, or it cannot be found by its name.
        """
        known = self.get(definition.name)
        if known is not None and known is not definition:
            message = f"two workflows are named {definition.name!r}: {_where(known)} and {_where(definition)}"
            raise UsageError(message, hint="give one of them another name with @workflow(name=...)")
        definition.check_registrable()
        self[definition.name] = definition
