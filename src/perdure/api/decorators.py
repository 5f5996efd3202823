"""`step` and `workflow`: they attach metadata to a function and do nothing else."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from perdure.errors import InvalidValue, UsageError
from perdure.guard.database import Database
from perdure.guard.transaction import transactional
from perdure.kernel.definition import Extent, StepDefinition, WorkflowDefinition
from perdure.kernel.kinds.step import AsyncStep, SyncStep
from perdure.kernel.scope import CURRENT
from perdure.model.duration import Duration, microseconds
from perdure.model.policy import ONCE, Durability, Mode, Retry, StepPolicy
from perdure.version.label import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
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


def _patterns(given: Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not all(isinstance(one, str) and one for one in given):
        message = f"{what} must be a list of texts, not {given!r}"
        raise InvalidValue(message)
    return tuple(given)


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, version: str | None = None, include: Sequence[str] | None = None,
    resources: Sequence[str] | None = None, config: Any = None, config_files: Sequence[str] = (),
    deps: Literal["record", "pin"] = "record", unversioned: bool = False,
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...  # fmt: skip
def workflow(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, version: str | None = None,
    include: Sequence[str] | None = None, resources: Sequence[str] | None = None, config: Any = None,
    config_files: Sequence[str] = (), deps: Literal["record", "pin"] = "record", unversioned: bool = False,
) -> Any:  # fmt: skip
    """Make a function a workflow: its runs are recorded step by step and resume where they stopped.

    A run is bound to the version of the workflow it began with: the code that the workflow can reach, the data files of
    its packages, and its configuration. Code that changes is a new version, whether its number is changed or not.

    Args:
        function: async or plain function. Between steps it must be deterministic.
        name: what runs are recorded under; the function's name by default.
        version: semantic version such as ``1.2.0``: its label. Without one it is labelled by its content.
        include: patterns of modules that it imports by a computed name, such as ``shop.plugins.*``.
        resources: patterns of the data files of its packages that belong to the version; by default all of them.
        config: what is frozen with the version: what JSON can hold, or a dataclass, struct or model. Bodies and steps
            read it with ``perdure.info().config``. No secrets: they must rotate.
        config_files: files beside the workflow's module that are frozen in the same way.
        deps: ``"record"`` notes the versions of installed distributions, ``"pin"`` makes them part of the version.
        unversioned: its runs are bound to no version, and go on with whatever code a worker has.

    Raises:
        UsageError: the function cannot be a workflow, or an option has a wrong value.
    """
    if version is not None and not unversioned:
        parse(version)
    extent = Extent(
        _patterns(include, "include"), _patterns(resources, "resources"), config,
        _patterns(config_files, "config_files") or (), deps, unversioned,
    )  # fmt: skip
    if deps not in ("record", "pin"):
        message = f"deps must be 'record' or 'pin', not {deps!r}"
        raise InvalidValue(message)

    def decorate(target: Callable[..., Any]) -> Any:
        return Workflow(WorkflowDefinition(_plain(target, "workflow"), name, version, extent))

    return decorate if function is None else decorate(function)
