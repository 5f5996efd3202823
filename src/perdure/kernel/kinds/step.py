"""The step: a function that runs outside the body, whose result is recorded.

What authors hold is an `AsyncStep` or a `SyncStep`. Called in a body it becomes an operation; called anywhere else it
is the plain function.
"""

from __future__ import annotations

import asyncio
import contextvars
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from zlib import crc32

import msgspec

from perdure.codec.exception import decode_exception
from perdure.codec.signature import encode_call
from perdure.errors import CodecError, UsageError
from perdure.kernel.operation import Operation
from perdure.kernel.scope import where
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from perdure.codec.signature import CallSignature
    from perdure.kernel.definition import StepDefinition
    from perdure.kernel.operation import Port
    from perdure.kernel.requests import Requests
    from perdure.model.event import Event

_COMPLETED: str = EventType.STEP_COMPLETED.value
P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class Sent(msgspec.Struct, frozen=True):
    """Where a step is executed that is not executed where its run is: by a run of its own."""

    run: str
    """Id of that run."""
    queue: str


def sent_by(event: Event) -> Sent:
    """Return what an event ``step_sent`` says."""
    return msgspec.json.decode(event.detail or b"", type=Sent)


class StepOperation(Operation):
    """One call of a step in a body, with what the log says about its attempts."""

    __slots__ = (
        "args", "attempts", "budget_from", "context", "definition", "input", "intent", "kwargs", "next_at",
        "sent", "signature",
    )  # fmt: skip
    kind = "step"
    future: Any

    def __init__(
        self, run: Requests, op_id: str, definition: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.run = run
        self.id = op_id
        self.name: str = definition.name
        self.unrecorded: bool = definition.unrecorded
        self.definition: StepDefinition = definition
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs
        self.input: bytes | None = None
        self.digest: int | None = None
        signature: CallSignature = definition.signature
        self.signature: CallSignature = signature
        if definition.store_input:
            self.input = encode_call(signature, args, kwargs, run.codec)
            self.digest = crc32(self.input if self.input[0] else run.codec.unwrap(self.input))
        self.context: Any = contextvars.copy_context()
        self.attempts: int = 0
        """Attempts that ended in a recorded failure."""
        self.budget_from: int = 0
        """Attempts that no longer count, because an operator's retry gave a fresh budget."""
        self.intent: int = 0
        """The at-most-once attempt that is known to have begun."""
        self.next_at: int = 0
        """When the next attempt is due."""
        self.sent: Sent | None = None
        """Where it is executed, if on another queue than its run's."""

    @property
    def key(self) -> str:
        """The same for every attempt, replay, failover and upgrade, wherever executed; to hand to outside services."""
        caller = self.run.caller
        return f"{self.run.run_id}:{self.id}" if caller is None else caller.key

    def start(self, port: Port) -> None:
        port.attempt(self)

    def settle(self, event: Event) -> None:
        if event.type == _COMPLETED:
            self.answer(event.payload, None)
            return
        error = self._error(event.payload or b"")
        self.run.failures.sign(error, event.seq, self.id)
        self.future.set_exception(error)

    def answer(self, payload: bytes | None, error: bytes | None) -> None:
        if error is not None:
            self.future.set_exception(self._error(error))
            return
        try:
            value = self.run.codec.decode(payload or b"", self.signature.returns)
        except CodecError as unreadable:
            unreadable.step = self.name
            raise
        self.future.set_result(value)

    def release(self) -> None:
        self.future = None
        self.context = None

    def _error(self, data: bytes) -> Exception:
        error = decode_exception(data, self.run.codec, run_id=self.run.run_id, step=self.name)
        if isinstance(error, StopIteration):  # a future refuses it: it would end the awaiting coroutine
            return RuntimeError(f"step {self.name!r} raised StopIteration")
        return error

    def note(self, event: Event) -> None:
        if event.type == EventType.STEP_INTENT:
            self.intent = event.attempt
        elif event.type == EventType.STEP_ATTEMPT_FAILED:
            self.attempts = event.attempt
            self.next_at = msgspec.json.decode(event.detail or b"{}").get("next_at", 0)
        elif event.type == EventType.STEP_FAILED:  # voided by an operator's retry
            self.attempts = self.budget_from = event.attempt
            self.next_at = 0
            self.sent = None
        elif event.type == EventType.STEP_SENT:
            self.sent = sent_by(event)
        elif event.type == EventType.STEP_CANCELLED:  # and yet wanted: see `NOTES`
            self.sent = None


class _Step:
    """What both colours of step share."""

    __slots__ = ("__dict__", "__weakref__", "definition")

    def __init__(self, definition: StepDefinition) -> None:
        self.definition: StepDefinition = definition
        update_wrapper(cast("Any", self), definition.function)

    @property
    def name(self) -> str:
        """The name the step is recorded under."""
        return self.definition.name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        message = f"step {self.name!r} is a method; a step is a function of a module or a static method"
        raise UsageError(message)

    def __repr__(self) -> str:
        return f"<step {self.name!r}>"

    async def _perform(self, run: Requests, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Become an operation of ``run``, in the task that awaits this."""
        definition = self.definition
        if run.steps.get(definition.name) is not definition:
            run.steps.admit(definition)
        operation = StepOperation(run, run.next_id(), definition, args, kwargs)
        try:
            return await run.ask(operation)
        except asyncio.CancelledError:
            run.abandon(operation)
            raise

    def _blocking(self, run: Requests, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Become an operation of a sync body, and wait for the answer."""
        if run.bridge is None:
            run.check_alive()
            message = f"step {self.name!r} would block the workflow"
            raise UsageError(message, hint=f"write `await {self.name}.aio(...)` in an async workflow")
        return run.bridge.call(lambda: self._perform(run, args, kwargs))


def _body() -> Any:
    found = where()
    return found if found is not None and found.is_body else None


class AsyncStep(_Step, Generic[P, T_co]):
    """An async function as a step."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """Call it: in a body as a step, elsewhere as the plain function."""
        found = where()
        if found is None or not found.is_body:
            return self.definition.function(*args, **kwargs)  # type: ignore[no-any-return]
        return self._perform(found, args, kwargs)

    @cached_property
    def aio(self) -> Callable[P, Coroutine[Any, Any, T_co]]:
        """The same call; there for symmetry with sync steps."""
        return self.__call__

    def blocking(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call it from a sync workflow and wait for its result.

        Outside a run this runs the plain function on an event loop of its own.
        """
        run = _body()
        if run is None:
            return asyncio.run(self.definition.function(*args, **kwargs))  # type: ignore[no-any-return]
        return self._blocking(run, args, kwargs)  # type: ignore[no-any-return]


class SyncStep(_Step, Generic[P, T_co]):
    """A plain function as a step; it runs on a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call it: in a sync body as a step, elsewhere as the plain function.

        Raises:
            UsageError: called without ``.aio`` in the body of an async workflow, which it would block.
        """
        run = _body()
        if run is None:
            return self.definition.function(*args, **kwargs)  # type: ignore[no-any-return]
        return self._blocking(run, args, kwargs)  # type: ignore[no-any-return]

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Await it: in an async body as a step, elsewhere the plain function on a thread."""
        run = _body()
        if run is None:
            return await asyncio.to_thread(self.definition.function, *args, **kwargs)
        return await self._perform(run, args, kwargs)  # type: ignore[no-any-return]

    @cached_property
    def blocking(self) -> Callable[P, T_co]:
        """The same call; there for symmetry with async steps."""
        return self.__call__
