"""Where the running code is: in a workflow body, in a step, or outside both."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

    from perdure.kernel.kinds.step import StepOperation
    from perdure.kernel.requests import Requests

CURRENT: ContextVar[Any] = ContextVar("perdure_scope", default=None)
"""An `Execution` in the tasks of a body, a `StepScope` in an attempt of a step, None elsewhere."""
enter: Callable[[Any], Token[Any]] = CURRENT.set
"""Say where the running code is. A method at hand: this and the next are called with every step."""
where: Callable[[], Any] = CURRENT.get
"""Return where the running code is."""


class Evicted(BaseException):
    """Unwinds a body whose run leaves this process. Private: not an error, not a cancellation, never recorded."""


class StepScope(Struct, eq=False):
    """What a step's attempt knows about itself. The runtime's `Attempt` is one."""

    is_body: ClassVar[bool] = False

    operation: StepOperation
    number: int
    epoch: int
    is_final: bool
    """Whether it is not to be attempted again, however it ends; set by what surrounds the function."""

    @property
    def run_id(self) -> str:
        """Id of the run that called the step."""
        run = self.operation.run
        return run.run_id if run.caller is None else run.caller.run

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.operation.name

    @property
    def key(self) -> str:
        """Idempotency key of the step."""
        return self.operation.key

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for its end: it was not timed out, cancelled or lost."""
        raise NotImplementedError

    @property
    def store(self) -> Any:
        """The engine's store, for what surrounds the function of a step."""
        raise NotImplementedError

    def reserve(self, payload: bytes) -> Any:
        """Ask for the next place in the log, for an event with this result that a transaction of the user's brings."""
        raise NotImplementedError

    def beat(self, detail: Any) -> None:
        """Record progress."""
        raise NotImplementedError


def body(what: str) -> Requests:
    """Return the run whose body is calling.

    Raises:
        UsageError: the caller is not a workflow body.
    """
    found = CURRENT.get()
    if found is None or not found.is_body:
        where = "in a step" if found is not None else "outside a run"
        message = f"perdure.{what}() was called {where}; it works in the body of a workflow"
        raise UsageError(message)
    execution: Requests = found
    return execution


def attempt(what: str) -> StepScope:
    """Return the step attempt that is calling.

    Raises:
        UsageError: the caller is not a step that runs in a workflow.
    """
    found = CURRENT.get()
    if found is None or found.is_body:
        message = f"perdure.{what}() was called outside a step; it works in a step that a run calls"
        raise UsageError(message)
    scope: StepScope = found
    return scope
