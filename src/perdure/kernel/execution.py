"""One run in memory: its loop, its pending operations, and the rule that feeds them from the log.

The same code runs live and on replay. Recorded events are delivered one at a time, strictly in the order of the log,
and the loop is drained after each. What the body asks for gets a structural id; a record that does not match what was
asked for under its id is a divergence, found before any effect.

Nothing here does I/O, reads a clock or starts anything: the runtime delivers events and starts what `take_fresh`
returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import Diverged
from perdure.kernel.loop import RunTask
from perdure.kernel.operation import NOTES, Operation
from perdure.kernel.requests import Requests
from perdure.kernel.unwind import aclose, close_generator, close_task
from perdure.model.status import EventType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from perdure.kernel.frozen import Frozen
    from perdure.kernel.step_run import Caller
    from perdure.model.event import Event

logger: logging.Logger = logging.getLogger("perdure.run")


_CLAIMED: str = EventType.RUN_CLAIMED.value
_CANCELS = frozenset({EventType.CANCEL_REQUESTED.value, EventType.DEADLINE_PASSED.value})
_FAILED: str = EventType.STEP_FAILED.value
_PATCHED: str = EventType.PATCH_TAKEN.value


class Outcome(msgspec.Struct, frozen=True):
    """How a body ended."""

    value: Any
    error: BaseException | None
    cancelled: bool


class Execution(Requests):
    """A run's body, running on its own deterministic loop."""

    # Of `Requests`, said again because it is written here too: a type checker would have to guess.
    logical_time: int
    epoch: int
    claims: int
    bridge: Any
    ahead: Collection[Event]
    frozen: Frozen
    caller: Caller | None
    given_up: list[Operation]
    fresh: list[Operation]
    cancel_requested: bool = False
    cancel_reason: str = ""
    timed_out: bool = False
    outcome: Outcome | None = None
    _root: RunTask | None = None

    def __init__(
        self, run_id: str, main: Callable[[], Coroutine[Any, Any, Any]], codec: Any, steps: Any, info: Any = None
    ) -> None:
        super().__init__(run_id, codec, steps, info)
        self.warnings: list[str] = []
        self._main = main
        self._answers: dict[str, tuple[bytes | None, bytes | None]] = {}
        self._closing: set[int] = set()

    # -- what the runtime calls ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Create the body's task."""
        context = contextvars.Context()
        self._root = self.loop.adopt(self._main(), "", context)

    def deliver(self, event: Event) -> None:
        """Deliver one recorded event and run the body until it waits again: `settle`, then `turn`."""
        self.settle(event)
        self.turn()

    def settle(self, event: Event) -> None:
        """Take in what one recorded event says, and answer what it answers. The body hears of it in its next `turn`.

        Raises:
            Diverged: the event answers something the body did not ask for.
        """
        kind, op_id, okind, name, _, self.logical_time = event[2:8]  # a third less than field by field
        if op_id is None:
            self._run_event(event)
            return
        operation = self._pending.get(op_id)
        if operation is None or operation.name != name or operation.kind != okind or operation.digest != event.digest:
            operation = self._match(event)
        if kind in NOTES:
            if operation is not None:
                operation.note(event)
            return
        if operation is None:
            return
        del self._pending[op_id]
        failures = self.failures
        if kind == _FAILED:
            failures.watching = True
        failures.deliveries += 1
        operation.settle(event)
        operation.release()

    def answer(self, operation: Operation, payload: bytes | None, error: bytes | None) -> None:
        """Answer an operation that is not recorded and run the body until it waits again.

        Whatever the order in which they end, such operations are answered in the order they were asked for: no record
        says what came first.
        """
        if self._pending.get(operation.id) is operation:
            self._answers[operation.id] = (payload, error)
        while self.holding:
            operation = self.unrecorded[0]
            if operation.id not in self._answers:
                return
            del self.unrecorded[0]
            del self._pending[operation.id]
            operation.answer(*self._answers.pop(operation.id))
            self.turn()

    @property
    def holding(self) -> bool:
        """Whether all deliveries have to wait, because an operation that is not recorded has no answer yet."""
        waiting = self.unrecorded
        while waiting and self._pending.get(waiting[0].id) is not waiting[0]:
            self._answers.pop(waiting.pop(0).id, None)
        return bool(waiting)

    def void(self, event: Event) -> None:
        """Take in a failure that an operator's retry voided: the operation starts over with a fresh budget."""
        operation = self._match(event)
        if operation is not None:
            operation.note(event)

    def asks_for(self, event: Event) -> bool:
        """Whether the body waits for exactly what ``event`` records: for events a retry has put in doubt."""
        operation = self._pending.get(event.op or "")
        asked = operation is not None and (operation.kind, operation.name) == (event.kind, event.name)
        return asked and operation is not None and operation.could_be(event)

    def take_fresh(self) -> list[Operation]:
        """Return the operations to start, in the order they were asked for, and forget them."""
        fresh, self.fresh = self.fresh, []
        if len(fresh) == 1:  # nearly always
            return fresh if fresh[0].id in self._pending else []
        return self._wanted(fresh) if fresh else fresh

    def _wanted(self, operations: list[Operation]) -> list[Operation]:
        pending = self._pending
        return [operation for operation in operations if pending.get(operation.id) is operation]

    def take_given_up(self) -> list[Operation]:
        """Return the operations the body gave up since the last call."""
        given_up, self.given_up = self.given_up, []
        return given_up

    def go_live(self) -> list[Operation]:
        """End the replay: return the operations that the log does not answer, in the order they were asked for."""
        self.live = True
        return list(self._pending.values())

    @property
    def pending(self) -> dict[str, Operation]:
        """What the body waits for, by id, oldest first."""
        return self._pending

    def cancel(self) -> None:
        """Deliver a cancellation to the body at its current await."""
        if self._root is not None and not self._root.done():
            self._root.cancel()

    def kill(self) -> None:
        """Unwind the body without a trace: every coroutine is closed in its own task's context."""
        self.dead = True
        if self.outcome is not None:
            return  # it has ended by itself: nothing is left to unwind
        tasks = [task for task in self.loop.tasks if not task.done()]
        for task in reversed(tasks):
            close_task(self.loop, task)
        for generator in reversed(list(self.loop.generators.values())):
            close_generator(self.loop, generator)
        self.loop.generators.clear()
        self.loop.ready.clear()
        if self.bridge is not None:
            self.bridge.kill()

    def release(self) -> None:
        """Let go of everything, so that the memory is free at once: what was here referred to itself in circles."""
        self._pending.clear()
        self.abandoned.clear()
        self.fresh.clear()
        self.given_up.clear()
        self.loop.tasks.clear()
        self.loop.generators.clear()
        self._root = None
        self._main = _gone
        self.loop.execution = None
        self.bridge = None
        self.ahead = ()

    # -- inside --------------------------------------------------------------------------------------------------

    def _match(self, event: Event) -> Operation | None:
        op_id = event.op or ""
        operation = self._pending.get(op_id)
        asked = (operation.kind, operation.name) if operation is not None else self.abandoned.get(op_id)
        if asked is None and event.type == _PATCHED:  # the call has moved, or is gone
            self.patches[event.name or ""] = True
            return None
        if asked != (event.kind, event.name):
            recorded = f"{event.kind} {event.name!r} (event {event.seq}, {event.type})"
            requested = f"{asked[0]} {asked[1]!r}" if asked else "nothing"
            text = (
                f"run {self.run_id}{self._on}: operation {op_id} recorded {event.kind} {event.name}, "
                f"the code asked for {f'{asked[0]} {asked[1]}' if asked else 'nothing'}"
            )
            raise Diverged(text, expected=recorded, found=requested, run_id=self.run_id)
        if operation is not None and event.digest != operation.digest and event.digest is not None:
            self.warn_of_other_arguments(event)
        return operation

    @property
    def _on(self) -> str:
        """The code that the body is, for messages."""
        return "" if self.info is None else f" on {self.info.workflow}@{self.info.workflow_version}"

    def warn_of_other_arguments(self, event: Event) -> None:
        """Say that an operation was recorded with other arguments than it is asked for now."""
        text = (
            f"run {self.run_id!r}: {event.kind} {event.name!r} (operation {event.op}) was recorded with other arguments"
        )
        if text not in self.warnings:
            self.warnings.append(text)
            logger.warning("%s; the recorded result is used", text)

    def _run_event(self, event: Event) -> None:
        if event.type == _CLAIMED:
            self.epoch = event.epoch
            self.claims += 1
            if self._root is None:  # the body begins with the first claim: its time is that of the claim
                self._begin()
        elif event.type in _CANCELS:
            if event.type == EventType.CANCEL_REQUESTED:
                self.cancel_requested = True
                facts = msgspec.json.decode(event.detail or b"{}")
                self.cancel_reason = self.cancel_reason or str(facts.get("reason") or "")
            self.timed_out |= event.type == EventType.DEADLINE_PASSED
            self.cancel()

    def turn(self) -> None:
        """Run the body until it waits again; once it has ended, wind up what it left behind.

        Raises:
            Spinning: the body does not come to rest.
        """
        self.loop.drain()
        root = self._root
        if root is not None and root.done():
            if len(self.loop.tasks) == 1 and not self.loop.generators:  # nearly always: there is nothing but the body
                self.outcome = self.outcome or self._end(root)
            else:
                self._wind_up(root)

    def _wind_up(self, root: RunTask) -> None:
        while self.outcome is None:
            left = [task for task in self.loop.tasks if not task.done()]
            newly = [task for task in left if task.number not in self._closing]
            for task in newly:
                self._closing.add(task.number)
                task.cancel()
            if left and not newly:
                return  # clean-up of the tasks that were left waits for an operation
            if not left and not self._close_generators():
                self.outcome = self._end(root)
                return
            self.loop.drain()

    def _close_generators(self) -> bool:
        """Begin to close the oldest abandoned generator; False when there is none left."""
        while self.loop.generators:
            key = next(iter(self.loop.generators))
            generator = self.loop.generators.pop(key)
            if getattr(generator, "ag_frame", None) is not None:
                self.loop.adopt(aclose(generator), f"~g{self.loop.next_number()}", contextvars.Context())
                self._closing.add(self.loop.tasks[-1].number)
                return True
        return False

    def _end(self, root: RunTask) -> Outcome:
        if root.cancelled():
            return Outcome(None, asyncio.CancelledError(), cancelled=True)
        error = root.exception()
        return Outcome(None if error else root.result(), error, cancelled=False)


async def _gone() -> None:
    """Stand in for the body of a run that has left."""
