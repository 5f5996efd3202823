"""`step` and `workflow`: they attach metadata to a function and do nothing else."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from perdure.errors import UsageError
from perdure.guard.database import Database
from perdure.guard.transaction import transactional
from perdure.kernel.definition import StepDefinition, WorkflowDefinition
from perdure.kernel.kinds.step import AsyncStep, SyncStep
from perdure.kernel.scope import CURRENT
from perdure.model.duration import Duration, microseconds
from perdure.model.policy import ONCE, Durability, Mode, Retry, StepPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Protocol

    class StepDecorator(Protocol):
        """What ``step(...)`` with arguments returns: keeps the function's signature and colour."""

        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncStep[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, function: Callable[P, T], /) -> SyncStep[P, T]: ...


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@overload
def step(function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncStep[P, T]: ...  # type: ignore[overload-overlap]
@overload
def step(function: Callable[P, T], /) -> SyncStep[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    mode: Mode = "normal",
    database: Database[Any] | None = None,
    durability: Durability = "strict",
    store_input: bool = True,
) -> StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    mode: Mode = "normal",
    database: Database[Any] | None = None,
    durability: Durability = "strict",
    store_input: bool = True,
) -> Any:
    """Make a function a step: called in a workflow, it runs outside the body and its result is recorded.

    Args:
        function: async or plain function; plain ones run on a thread.
        name: what the step is recorded under; the function's name by default.
        retry: attempts and waits; without it a step is tried once.
        timeout: longest time of one attempt.
        mode: ``"normal"`` (attempted at least once, recorded once) or ``"at_most_once"`` (an interrupted attempt
            raises `StepInterrupted` and is never re-run by itself) or ``"transaction"`` (its writes to ``database``
            and its result are committed together there, so the effect happens once).
        database: where a step with ``mode="transaction"`` writes; its ``connection`` is the transaction.
        durability: ``"strict"`` (recorded before the next step begins), or for pure steps ``"ahead"`` (a bounded number
            of results may be unrecorded) or ``"none"`` (not recorded, run again on replay).
        store_input: record the arguments beside the result.

    Raises:
        UsageError: the function cannot be a step, or an option has a wrong value.
    """
    limit = None if timeout is None else microseconds(timeout, "timeout")
    policy = StepPolicy(
        retry=_checked_retry(retry), timeout_us=limit, mode=mode, durability=durability, store_input=store_input
    )

    if (mode == "transaction") != isinstance(database, Database):
        message = "mode='transaction' and database=perdure.Database(...) belong together"
        raise UsageError(message)

    def decorate(target: Callable[..., Any]) -> Any:
        definition = StepDefinition(_plain(target, "step"), name, policy)
        if database is not None:
            definition.performed = transactional(database, definition)
        return AsyncStep(definition) if definition.is_async else SyncStep(definition)

    return decorate if function is None else decorate(function)


def _checked_retry(retry: Retry | None) -> Retry:
    if retry is None:
        return ONCE
    if not isinstance(retry, Retry):
        message = f"retry must be a perdure.Retry, not {retry!r}"
        raise UsageError(message)
    return retry


def _plain(target: Any, noun: str) -> Any:
    if isinstance(target, AsyncStep | SyncStep | Workflow):
        message = f"{target!r} is decorated already"
        raise UsageError(message)
    if isinstance(target, staticmethod):
        return target.__func__
    if not inspect.isroutine(target):
        message = f"a {noun} must be a function, not {target!r}"
        raise UsageError(message)
    return target


class Workflow(Generic[P, R_co]):
    """A function as a workflow. Called outside a run it is the plain function."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        """The name runs of it are recorded under."""
        return self.definition.name

    @property
    def version(self) -> str:
        """The version new runs of it are recorded with."""
        return self.definition.version

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the plain function."""
        found = CURRENT.get()
        if found is not None and found.is_body:
            message = f"workflow {self.name!r} was called inside a workflow; child runs are not available yet"
            raise UsageError(message, hint="call its steps, or a plain function that calls them")
        return cast("R_co", self.definition.function(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, version: str = "0.0.0") -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(function: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str = "0.0.0") -> Any:
    """Make a function a workflow: its runs are recorded step by step and resume where they stopped.

    Args:
        function: async or plain function. Between steps it must be deterministic.
        name: what runs are recorded under; the function's name by default.
        version: label of this version of the code.

    Raises:
        UsageError: the function cannot be a workflow.
    """

    def decorate(target: Callable[..., Any]) -> Any:
        return Workflow(WorkflowDefinition(_plain(target, "workflow"), name, version))

    return decorate if function is None else decorate(function)
