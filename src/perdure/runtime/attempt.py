"""Attempts: the only place where user code with effects is started.

Before every attempt the owner checks its lease by its own clock. An attempt of an at-most-once step begins only after
its intent is recorded, which is a fence that needs no clock.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.exception import encode_exception
from perdure.errors import CodecError, GuardBusy, LeaseLost, StepInterrupted, StepTimedOut
from perdure.kernel.kinds.step import StepOperation
from perdure.kernel.scope import enter
from perdure.model.event import Draft
from perdure.model.status import EventType
from perdure.runtime.errands import Errands
from perdure.runtime.lease import boot_time
from perdure.runtime.scope import Attempt, is_fatal

if TYPE_CHECKING:
    from contextvars import Context

    from perdure.runtime.recorder import Place
    from perdure.runtime.scope import Owner

_COMPLETED: str = EventType.STEP_COMPLETED.value
_BUSY = 5
"""How often a transaction that has met another one at its end is done again, beside what the step allows."""
BEAT_EVERY_US = 1_000_000
"""A step's heartbeat detail is recorded at most this often."""


def _end_place(run: Owner, place: Place) -> None:
    if run.gone:
        return
    if place.taken:
        run.recorder.joined()
        run.host.turns.take()
    else:
        run.recorder.outrun()


class Attempts:
    """The attempts of one run."""

    __slots__ = ("_errands", "abandoned", "eager", "run", "running", "waiting")

    def __init__(self, run: Owner) -> None:
        self.run: Owner = run
        self.running: dict[str, Attempt] = {}
        """By operation id. An operation has at most one attempt under way, timed-out threads included."""
        self.waiting: dict[str, int] = {}
        """Attempts due that cannot begin yet, by operation id: the lease is in doubt, or a thread has not ended."""
        self.eager: bool = True
        """Whether a step may begin, and even end, before the call that starts it returns."""
        self.abandoned: bool = False
        self._errands: Errands | None = None

    @property
    def under_way(self) -> bool:
        """Whether any attempt runs or is about to: the run has something to do."""
        return bool(self.running or self.waiting or (self._errands is not None and self._errands.looking))

    @property
    def errands(self) -> Errands:
        """Steps that are executed elsewhere."""
        if self._errands is None:
            self._errands = Errands(self)
        return self._errands

    # -- beginning -----------------------------------------------------------------------------------------------

    def start(self, operation: StepOperation) -> None:
        """Begin the next attempt, or record why there is none; or have the step executed where it belongs."""
        if (operation.sent is not None or self.run.host.queue_of_step is not None) and self.errands.take(operation):
            return
        number = operation.attempts + 1
        if operation.definition.at_most_once:
            if operation.intent >= number:
                self._interrupted(operation)
                return
            self.record(operation, EventType.STEP_INTENT, number, store_input=True)
            return
        self._launch(operation, number)

    def intended(self, operation: StepOperation, number: int) -> None:
        """Begin the attempt whose intent is durable now."""
        if not self.run.leaving:
            self._launch(operation, number)

    def _launch(self, operation: StepOperation, number: int) -> None:
        run, running = self.run, self.running
        host = run.host
        lease = host.lease
        if lease is not None and boot_time() >= lease.deadline:
            self.waiting[operation.id] = number
            host.when_lease_holds(partial(self._launch_if_wanted, operation, number))
            return
        if operation.id in running:  # a timed-out attempt whose thread has not ended
            self.waiting[operation.id] = number
            return
        attempt = running[operation.id] = Attempt(operation, number, run.recorder.epoch, False, self)
        context = operation.context if number == 1 else operation.context.copy()
        if operation.definition.is_async:
            task = host.starter.task(self._run_async(attempt), operation.name, context, at_once=self.eager)
            if running.get(operation.id) is attempt:  # else it has begun and ended at once
                attempt.task = task
        else:
            self._run_sync(attempt, context)

    def _launch_if_wanted(self, operation: StepOperation, number: int) -> None:
        self.waiting.pop(operation.id, None)
        if self.abandoned:
            return
        run = self.run
        if run.gone or run.leaving or run.execution.pending.get(operation.id) is not operation:
            return
        self._launch(operation, number)

    async def _run_async(self, attempt: Attempt) -> None:
        attempt.begun = True
        enter(attempt)
        operation = attempt.operation
        definition = operation.definition
        timeout_us = definition.policy.timeout_us
        error: BaseException | None = None
        value = None
        try:
            if timeout_us is None:
                value = await definition.performed(*operation.args, **operation.kwargs)
            else:
                value, error = await self._timed(attempt, timeout_us)
        except asyncio.CancelledError as raised:
            error = raised
            if self._is_cancelled_from_outside(attempt):
                self._fatal(attempt, raised)
                return
        except BaseException as raised:  # noqa: BLE001 - a step may fail in any way; it is recorded
            if is_fatal(raised):
                self._fatal(attempt, raised)
                return
            error = raised
        self._ended(attempt, value, error)

    def _is_cancelled_from_outside(self, attempt: Attempt) -> bool:
        """Whether somebody cancelled the step's task who is not its run: the loop, as the process ends."""
        task = asyncio.current_task()
        return not (attempt.given_up or self.abandoned) and task is not None and task.cancelling() > 0

    async def _timed(self, attempt: Attempt, timeout_us: int) -> tuple[Any, BaseException | None]:
        operation = attempt.operation
        definition = operation.definition
        limit = asyncio.timeout(timeout_us / 1_000_000)
        try:
            async with limit:
                return await definition.performed(*operation.args, **operation.kwargs), None
        except TimeoutError as raised:
            return None, self._timeout_error(attempt) if limit.expired() else raised

    def _run_sync(self, attempt: Attempt, context: Context) -> None:
        operation = attempt.operation
        function, args, kwargs = operation.definition.performed, operation.args, operation.kwargs

        def call() -> Any:
            enter(attempt)
            return function(*args, **kwargs)

        def done(value: Any, error: BaseException | None) -> None:
            if attempt.timer is not None:
                attempt.timer.cancel()
            if is_fatal(error) and not isinstance(error, asyncio.CancelledError):
                self._fatal(attempt, error)  # type: ignore[arg-type]
            else:
                self._ended(attempt, value, error)

        host = self.run.host
        timeout_us = operation.definition.policy.timeout_us
        if timeout_us is not None:
            attempt.timer = host.loop.call_later(timeout_us / 1_000_000, self._sync_timeout, attempt)
        host.threads.submit(lambda: context.run(call), done)

    def _sync_timeout(self, attempt: Attempt) -> None:
        """Answer a sync step whose time is up. Its thread cannot be stopped; nothing overlaps it until it ends."""
        if not (self.abandoned or attempt.given_up):
            attempt.timed_out = True
            self._failed(attempt, self._timeout_error(attempt))
            self.run.pump()

    def _timeout_error(self, attempt: Attempt) -> StepTimedOut:
        operation = attempt.operation
        seconds = (operation.definition.policy.timeout_us or 0) / 1_000_000
        return StepTimedOut(step=operation.name, timeout_s=seconds, run_id=self.run.id)

    # -- ending --------------------------------------------------------------------------------------------------

    def reserve(self, attempt: Attempt, place: Place, payload: bytes) -> None:
        """Give the record of an attempt its place in the log, if anybody still waits for it."""
        run = self.run
        if not attempt.is_wanted or run.recorder.closed:
            place.refuse()
            return
        if attempt.timer is not None:
            attempt.timer.cancel()
        attempt.place = place
        run.tape.reserve(self._completed(attempt, payload), place)

    def _is_settled(self, attempt: Attempt, error: BaseException | None) -> bool:
        """Whether nothing is to be recorded: nobody is interested, or the attempt's own transaction has done it."""
        place = attempt.place
        if place is None:
            return self.abandoned
        if not (place.taken or isinstance(error, LeaseLost) or self.run.gone):
            return False  # its place in the log is to be filled
        self.running.pop(attempt.operation.id, None)
        attempt.task = None
        self.run.host.loop.call_soon(_end_place, self.run, place)  # the body goes on in a plain callback
        return True

    def _ended(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        if (self.abandoned or attempt.place is not None) and self._is_settled(attempt, error):
            return
        run, operation = self.run, attempt.operation
        del self.running[operation.id]
        attempt.task = None  # each refers to the other
        if attempt.timed_out:
            if operation.id in self.waiting:
                self._launch_if_wanted(operation, self.waiting[operation.id])
            run.pump_soon()
            return
        if attempt.given_up:
            if operation.unrecorded:
                run.pump_soon()
            else:
                self.record(operation, EventType.STEP_CANCELLED, attempt.number, place=attempt.place)
            return
        if error is not None:
            self._failed(attempt, error)
        else:
            self._succeeded(attempt, value)

    def _succeeded(self, attempt: Attempt, value: Any) -> None:
        run, operation = self.run, attempt.operation
        try:
            payload = run.execution.codec.encode(value, operation.signature.returns)
        except CodecError as refused:
            self._failed(attempt, self._result_error(operation, refused), final=True)
            return
        durability = operation.definition.policy.durability
        if durability == "none":
            run.host.loop.call_soon(run.answer, operation, payload, None)
            return
        draft = self._completed(attempt, payload)
        if durability == "ahead":
            if run.tape.record_early(draft):
                run.pump_soon()
        else:
            run.tape.record(draft)

    def _completed(self, attempt: Attempt, payload: bytes) -> Draft:
        operation = attempt.operation
        now = self.run.host.now
        return Draft(
            _COMPLETED, now(), operation.id, operation.kind, operation.name, attempt.number,
            None, operation.digest, None, operation.input, payload,
        )  # fmt: skip

    def _result_error(self, operation: StepOperation, error: CodecError) -> CodecError:
        text = f"the result of step {operation.name!r} cannot be stored: {error.text}"
        return CodecError(text, path=error.path, type_name=error.type_name, run_id=self.run.id, step=operation.name)

    def _failed(self, attempt: Attempt, error: BaseException, *, final: bool = False) -> None:
        operation = attempt.operation
        retry = operation.definition.policy.retry
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError(f"step {operation.name!r} raised CancelledError although nobody had cancelled it")
        spent = attempt.number - operation.budget_from
        if attempt.place is not None and isinstance(error, GuardBusy):
            spent -= _BUSY
        final = final or attempt.is_final or spent >= retry.attempts or isinstance(error, retry.give_up_on)
        if operation.definition.policy.durability == "none":
            self._unrecorded_failure(attempt, error, final=final)
            return
        payload = self._encode(error)
        if final:
            self.record(
                operation, EventType.STEP_FAILED, attempt.number, payload=payload, store_input=True, place=attempt.place
            )
            return
        now = self.run.host.now()
        next_at = now + retry.wait_us(max(spent, 1), self.run.host.luck())
        detail = msgspec.json.encode({"next_at": next_at, "error": type(error).__name__})
        kind = EventType.STEP_ATTEMPT_FAILED
        self.record(operation, kind, attempt.number, payload=payload, detail=detail, place=attempt.place)

    def _unrecorded_failure(self, attempt: Attempt, error: BaseException, *, final: bool) -> None:
        operation, run = attempt.operation, self.run
        if final:
            run.host.loop.call_soon(run.answer, operation, None, self._encode(error))
            return
        operation.attempts = attempt.number
        wait_us = operation.definition.policy.retry.wait_us(attempt.number, run.host.luck())
        run.host.loop.call_later(wait_us / 1_000_000, self._launch_if_wanted, operation, attempt.number + 1)

    def _interrupted(self, operation: StepOperation) -> None:
        error = StepInterrupted(step=operation.name, run_id=self.run.id)
        payload = self._encode(error)
        self.record(operation, EventType.STEP_FAILED, operation.intent, payload=payload, store_input=True)

    def _fatal(self, attempt: Attempt, error: BaseException) -> None:
        """The process is in trouble: hand the run back, record nothing about the step, pass the trouble on."""
        self.running.pop(attempt.operation.id, None)
        # A person's interrupt, or other code on the disk, says nothing about the run; all else would happen again
        # wherever it runs.
        fatal = not (self.run.host.is_displaced_by(error) or isinstance(error, KeyboardInterrupt))
        if attempt.place is not None:  # the log waits for it, and nothing can be said of it
            reason = f"{type(error).__name__} at the end of step {attempt.operation.name!r}'s transaction"
            self.run.host.loop.call_soon(self.run.drop, reason)
        elif not self.abandoned:
            self.run.hand_back(f"{type(error).__name__} in step {attempt.operation.name!r}", fatal=fatal)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def record(
        self, operation: StepOperation, kind: EventType, number: int, *, payload: bytes | None = None,
        detail: bytes | None = None, store_input: bool = False, place: Place | None = None,
    ) -> None:  # fmt: skip
        """Append an event about a step."""
        given = operation.input if store_input else None
        draft = Draft(
            kind, self.run.host.now(), operation.id, operation.kind, operation.name, number, None,
            operation.digest, detail, given, payload,
        )  # fmt: skip
        if place is None:
            self.run.tape.record(draft)
        else:
            self.run.tape.fill(place.event.result(), draft)

    # -- giving up -----------------------------------------------------------------------------------------------

    def give_up(self, operation: Any) -> None:
        """The body no longer waits for it: stop the attempt if it can be stopped."""
        if isinstance(operation, StepOperation) and operation.sent is not None:
            self.errands.give_up(operation, operation.sent)
            return
        self.waiting.pop(operation.id, None)
        attempt = self.running.get(operation.id)
        if attempt is None or attempt.timed_out:
            return
        attempt.given_up = True
        if attempt.task is not None:
            attempt.task.cancel()
            if not attempt.begun:
                self._ended(attempt, None, None)

    def abandon(self) -> None:
        """The run leaves: stop what can be stopped, take no results."""
        self.abandoned = True
        if self._errands is not None:
            self._errands.abandon()
            self._errands = None  # each refers to the other
        for attempt in self.running.values():
            if attempt.timer is not None:
                attempt.timer.cancel()
            if attempt.task is not None:
                attempt.task.cancel()

    def release(self) -> None:
        """Let go of the run, unless an attempt still ends: without this circle its memory is free at once."""
        if not self.under_way:
            del self.run

    def _encode(self, error: BaseException) -> bytes:
        assert isinstance(error, Exception)  # noqa: S101 - what is not was sorted out as fatal
        return encode_exception(error, self.run.execution.codec)

    def send_beat(self, attempt: Attempt, detail: Any) -> None:
        """Take what a step says about its progress, on whatever thread it says it, but not too often."""
        if self.abandoned:
            return
        payload = self.run.execution.codec.encode(detail)
        host = self.run.host
        now = host.now()
        if now - attempt.beaten_at >= BEAT_EVERY_US:
            attempt.beaten_at = now
            host.loop.call_soon_threadsafe(self.beat, attempt.operation, attempt.number, payload)

    def beat(self, operation: StepOperation, number: int, payload: bytes) -> None:
        """Record what a step says about its progress."""
        attempt = self.running.get(operation.id)
        if attempt is None or attempt.number != number or attempt.timed_out:
            return  # it has been answered: a late word of its thread has no place in the log
        if not (self.abandoned or self.run.recorder.closed):
            self.record(operation, EventType.STEP_HEARTBEAT, number, payload=payload)
