"""The workflows and steps an engine knows, by name."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from perdure.errors import UsageError
from perdure.kernel.definition import Definition, StepDefinition, WorkflowDefinition

D = TypeVar("D", bound=Definition)


class Registry(dict[str, D], Generic[D]):
    """Name to definition. One name means one function, else a log could not be read back."""

    noun: ClassVar[str]

    def admit(self, definition: D) -> None:
        """Take in a definition when it is registered or first called.

        Raises:
            UsageError: its name is taken by another function, or it cannot be found by its name.
        """
        known = self.get(definition.name)
        if known is not None and known is not definition:
            noun = self.noun
            message = f"two {noun}s are named {definition.name!r}: {_where(known)} and {_where(definition)}"
            raise UsageError(message, hint=f"give one of them another name with @{noun}(name=...)")
        definition.check_registrable()
        self[definition.name] = definition


class StepRegistry(Registry[StepDefinition]):
    """Step name to definition."""

    noun = "step"


class WorkflowRegistry(Registry[WorkflowDefinition]):
    """Workflow name to definition."""

    noun = "workflow"


def _where(definition: Definition) -> str:
    function = definition.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
