"""What a decorator attaches to a function: inert data about a step or a workflow."""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from perdure.codec.signature import CallSignature
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.model.policy import StepPolicy

NO_VERSION: Final = "0.0.0"
"""The version of a workflow that declares none."""
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")


def check_name(name: object, what: str) -> str:
    """Return ``name`` if it can name something.

    Raises:
        UsageError: not a text of 1 to 255 characters without control characters.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name) if len(repr(name)) < 80 else f"{repr(name)[:60]}... ({len(str(name))} characters)"
        message = f"{what} must be a text of 1 to 255 characters without control characters, not {shown}"
        raise UsageError(message)
    return name


class Definition:
    """A function with a name: base of steps and workflows."""

    __slots__ = ("__dict__", "__weakref__", "function", "is_async", "name")
    noun = "function"

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        self.function: Callable[..., Any] = function
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.name: str = check_name(self._default_name() if name is None else name, f"the name of a {self.noun}")
        self._check()

    def _default_name(self) -> str:
        return getattr(self.function, "__name__", "")

    def _check(self) -> None:
        function = self.function
        where = f"{self.noun} {self.name!r}"
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            message = f"{where} is a generator; a {self.noun} returns its result"
            raise UsageError(message)

    def check_registrable(self) -> None:
        """Refuse what cannot be found again by its name.

        Raises:
            UsageError: a lambda or nested function without a name of its own.
        """
        qualified = getattr(self.function, "__qualname__", "")
        if self.name == "<lambda>" or ("<lambda>" in qualified and self.name == self._default_name()):
            message = f"a {self.noun} cannot be a lambda without a name"
            raise UsageError(message, hint=f"pass name=... to the {self.noun} decorator")
        if "<locals>" in qualified and not self.named:
            message = f"{self.noun} {self.name!r} is a nested function without a name of its own"
            raise UsageError(message, hint=f"define it at the top of a module, or pass name=... to @{self.noun}")

    named = False

    @cached_property
    def signature(self) -> CallSignature:
        """How arguments are stored, resolved when first needed (annotations may refer to later names)."""
        return CallSignature(self.function, f"{self.noun} {self.name}")


class StepDefinition(Definition):
    """A step: its function, name and policy."""

    # Asked for with every step: an attribute with a place of its own is read at a tenth of the cost.
    __slots__ = ("at_most_once", "performed", "policy", "store_input", "unrecorded")
    noun = "step"

    performed: Callable[..., Any]
    """What an attempt calls: the function, or what surrounds it."""

    def __init__(self, function: Callable[..., Any], name: str | None, policy: StepPolicy) -> None:
        super().__init__(function, name)
        self.performed = function
        self.named: bool = name is not None
        self.policy: StepPolicy = policy
        self.unrecorded: bool = policy.durability == "none"
        self.store_input: bool = policy.store_input
        self.at_most_once: bool = policy.mode == "at_most_once"


class Extent(NamedTuple):
    """What belongs to the version of a workflow beside the code that it imports; see `perdure.workflow`."""

    include: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    config: Any = None
    config_files: tuple[str, ...] = ()
    deps: Literal["record", "pin"] = "record"
    unversioned: bool = False


class WorkflowDefinition(Definition):
    """A workflow: its function, name and version.

    Attributes:
        semver: the semantic version it is declared with; None where it declares none.
        version: the same, or what stands for none.
        extent: what belongs to its version.
    """

    noun = "workflow"

    def __init__(
        self, function: Callable[..., Any], name: str | None, version: str | None = None, extent: Extent | None = None
    ) -> None:
        super().__init__(function, name)
        self.named: bool = name is not None
        self.semver: str | None = version
        self.version: str = check_name(version or NO_VERSION, f"the version of workflow {self.name!r}")
        self.extent: Extent = extent or Extent()
