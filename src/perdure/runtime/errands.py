"""Steps that are executed elsewhere: each by a run of its own, on the queue that its name is routed to. See ADR 0035.

What is sent is on record first (``step_sent``), so that a replay asks for the same run whatever the routes say by then.
Its end puts a message into the inbox of the run that waits, in the transaction of that end: meanwhile this run may
leave memory, and its slot. Both runs may be anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec.exception import encode_exception
from perdure.codec.signature import encode_call
from perdure.errors import IdConflict, RunCancelled, RunNotFound, RunTerminated, StoreError, UsageError
from perdure.kernel.kinds.step import Sent, StepOperation, sent_by
from perdure.kernel.step_run import Caller, detail_of, id_of, place_of
from perdure.model.code import UNBOUND
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.run import CANCEL, RETURNED, Message, RunRow, Tombstone
from perdure.model.status import TERMINAL, EventType, Status
from perdure.model.write import Create, Existing, Failed, Send
from perdure.runtime.connection import Answer
from perdure.runtime.ids import uuid7

if TYPE_CHECKING:
    from perdure.model.event import Event
    from perdure.runtime.attempt import Attempts

logger: logging.Logger = logging.getLogger("perdure.step")
LOOK_US: Final = 600_000_000
"""How long a run may wait, out of memory, for the word that its step has ended, before it looks by itself."""
_PAUSE_S: Final = 1.0
GIVEN_UP: Final = "its caller gave the step up"
"""Why a run that executes a step is cancelled."""
STEP_TAG: Final = "perdure.step"
RUN_TAG: Final = "perdure.run"
"""Tags of a run that executes a step: the step's name, and the run that called it."""


class Errands:
    """The steps of one run that are executed elsewhere."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._words: dict[str, asyncio.Event] = {}
        """By operation, of those that are watched: set once there may be something new about it."""
        self._answered: set[str] = set()
        self.looking: set[str] = set()
        """Operations whose end may be there. Until that is known the run must not leave: nobody would wake it again."""

    def take(self, operation: StepOperation) -> bool:
        """See to it that a step is executed elsewhere, if that is where it belongs; False if it belongs here."""
        if operation.sent is not None:
            self._follow(operation, operation.sent)
            return True
        queue = self._other_queue(operation)
        if queue is None:
            return False
        self._send(operation, queue)
        return True

    def _other_queue(self, operation: StepOperation) -> str | None:
        """Return the queue that a step is routed to; None if it is this run's, or the step has begun here."""
        run = self._attempts.run
        queue_of_step = run.host.queue_of_step
        begun = operation.attempts > operation.budget_from or operation.intent > operation.attempts
        if queue_of_step is None or begun or operation.unrecorded or run.execution.caller is not None:
            return None
        queue = queue_of_step(operation.name)
        return None if queue == run.row.queue else queue

    def _send(self, operation: StepOperation, queue: str) -> None:
        """Record that a step is executed by a run of its own."""
        if self._place_of(operation) is None:
            function = operation.definition.function
            name, where = operation.name, function.__qualname__
            text = f"step {name!r} is routed to queue {queue!r}, and cannot be found as {where}"
            hint = f"define it at the top of module {function.__module__}, or let no pattern of routes match its name"
            self._fail(operation, UsageError(text, hint=hint))
            return
        # Each sending is another run. The number of the attempt is not enough: of what was given up, or asked for after
        # a failure that an operator's retry took back, there is a run already, and it may have been for something else.
        sent = Sent(id_of(operation.key, self._attempts.run.sendings.get(operation.id, 0) + 1), queue)
        number = operation.attempts + 1
        self._attempts.record(operation, EventType.STEP_SENT, number, detail=msgspec.json.encode(sent))

    def _follow(self, operation: StepOperation, sent: Sent) -> None:
        """See to it that the run which executes a step is there, and wait for its end."""
        run = self._attempts.run
        run.launcher.wake(operation, run.host.now() + LOOK_US)
        if operation.id in self._watches:
            self._words[operation.id].set()
            return
        self._words[operation.id] = asyncio.Event()
        self.looking.add(operation.id)
        task = run.host.loop.create_task(self._watch(operation, sent), name=f"perdure-step {sent.run}")
        self._watches[operation.id] = task

    def returned(self, event: Event) -> None:
        """Take in the word that the run which executes a step has ended."""
        facts = msgspec.json.decode(event.detail or b"{}")
        word = self._words.get(facts["op"])
        if word is not None:
            word.set()
            self.looking.add(facts["op"])
        self._attempts.run.host.waiters.tell(facts["run"], None)

    def give_up(self, operation: StepOperation, sent: Sent) -> None:
        """The body no longer waits for the step: ask the run that executes it to stop."""
        if operation.id in self._answered:
            return  # its answer is on its way into the log
        watch = self._watches.pop(operation.id, None)
        if watch is not None:
            watch.cancel()
            self._forget(operation.id)
        self._recall(sent.run)
        self._attempts.record(operation, EventType.STEP_CANCELLED, operation.attempts + 1)

    def recall(self, sent: Event) -> None:
        """Ask again for what was asked for, perhaps, before the run came here: nobody waits for this step any more.

        What an upgrade has dropped is not on record as given up: the body has never asked for it.
        """
        run, op = self._attempts.run, sent.op or ""
        operation = run.execution.pending.get(op)
        if isinstance(operation, StepOperation) and operation.sent == sent_by(sent):
            return
        self._recall(sent_by(sent).run)
        known = run.execution.abandoned.get(op)
        if known is not None:
            kind, now = EventType.STEP_CANCELLED, run.host.now()
            run.tape.record(Draft(kind, now, op, *known, sent.attempt, digest=sent.digest))

    def abandon(self) -> None:
        """Watch nothing any more: the run leaves."""
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._words.clear()
        self.looking.clear()

    # -- inside --------------------------------------------------------------------------------------------------

    async def _watch(self, operation: StepOperation, sent: Sent) -> None:
        """Wait for the end, however long the database is away meanwhile."""
        word = self._words[operation.id]
        try:
            while True:
                self.looking.add(operation.id)
                try:
                    if await self._looked(operation, sent, word):
                        return
                    if not word.is_set():
                        self._rest(operation)
                        await self._news(sent.run, word)
                except StoreError as error:
                    logger.debug("cannot look after run %s now: %s", sent.run, error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            if self._watches.get(operation.id) is asyncio.current_task():
                del self._watches[operation.id]
                self._forget(operation.id)

    async def _looked(self, operation: StepOperation, sent: Sent, word: asyncio.Event) -> bool:
        """Look how the run has ended, and record it; False if it goes on."""
        word.clear()
        end = await self._begun(operation, sent) or await self._end(sent.run)
        if end is not None:
            self._answer(operation, end)
        return end is not None

    def _rest(self, operation: StepOperation) -> None:
        """There is nothing to do for a step before there are news: the run may leave meanwhile."""
        self.looking.discard(operation.id)
        self._attempts.run.pump_soon()

    async def _news(self, run_id: str, word: asyncio.Event) -> None:
        """Wait until the run may have ended: it is seen to be at rest, or its word has come."""
        host = self._attempts.run.host
        await host.waiters.wait(run_id)
        row = await host.reader.call(host.loop, host.store.get, run_id)
        if isinstance(row, RunRow) and row.status == Status.PARKED:
            await word.wait()  # somebody has to let it go on first

    def _forget(self, op: str) -> None:
        del self._words[op]
        self.looking.discard(op)

    async def _begun(self, operation: StepOperation, sent: Sent) -> Exception | None:
        """Start the run, if it is not there yet. Returns why there can be none."""
        host = self._attempts.run.host
        try:
            create = self._create(operation, sent)
        except Exception as error:  # noqa: BLE001 - an argument may fail to be stored in any way
            return error
        answer = Answer(host.loop)
        host.writer.submit(create, answer)
        outcome = await answer.future
        if isinstance(outcome, Failed):
            return outcome.error
        if isinstance(outcome, Existing):
            if outcome.row.input_digest != create.row.input_digest:
                text = f"run id {create.row.id!r}, which is for step {operation.name!r}, is taken by another run"
                return IdConflict(create.row.id, text)
        else:
            host.on_created()
        return None

    def _create(self, operation: StepOperation, sent: Sent) -> Create:
        run = self._attempts.run
        host, row = run.host, run.row
        given = operation.input
        if given is None:
            given = encode_call(operation.signature, operation.args, operation.kwargs, run.execution.codec)
        detail = detail_of(
            Caller(run.id, operation.id, self._place_of(operation) or ""), is_bound=row.version_id != UNBOUND
        )
        now = host.now()
        started = Draft(
            EventType.RUN_STARTED, now, None, operation.kind, operation.name, state=f">{Status.PENDING}",
            detail=detail, input=given,
        )  # fmt: skip
        tags = ((RUN_TAG, run.id), (STEP_TAG, operation.name))
        child = RunRow(
            sent.run, row.workflow, row.workflow_version, Status.PENDING, sent.queue, row.priority, now, None, 0, 0,
            None, _digest(sent.run, operation.name), msgspec.json.encode(dict(tags)).decode(), None, now, now,
            row.partition_key, row.version_id,
        )  # fmt: skip
        return Create(child, seal(sent.run, EMPTY_TAIL, (started,), 0, host.commit_ids.take()), False, tags)

    def _place_of(self, operation: StepOperation) -> str | None:
        run = self._attempts.run
        return place_of(operation.definition, run.host.workflows[run.row.workflow])

    async def _end(self, run_id: str) -> tuple[RunRow, Event] | Tombstone | None:
        """Return how a run has ended; None while it has not."""
        host = self._attempts.run.host
        row = await host.reader.call(host.loop, host.store.get, run_id)
        if not isinstance(row, RunRow):
            return row  # type: ignore[no-any-return]
        if row.status not in TERMINAL:
            return None
        tail = await host.reader.call(host.loop, host.store.load, run_id, -1)
        ended = tail and (tail[0].state or "").endswith(f">{row.status}")
        return (row, tail[0]) if ended else None

    def _answer(self, operation: StepOperation, end: tuple[RunRow, Event] | Tombstone | Exception) -> None:
        """Record how the step ended, if anybody still waits for it."""
        run = self._attempts.run
        if run.gone or run.leaving or run.recorder.closed or run.execution.pending.get(operation.id) is not operation:
            return
        self._answered.add(operation.id)
        if isinstance(end, Exception):
            self._fail(operation, end)
            return
        if isinstance(end, Tombstone):
            text = f"the history of the run that executed step {operation.name!r} was purged; it was {end.status}"
            self._fail(operation, RunNotFound(end.run_id, text))
            return
        row, last = end
        number = operation.attempts + 1
        if last.type == EventType.RUN_COMPLETED:
            self._attempts.record(operation, EventType.STEP_COMPLETED, number, payload=last.payload, store_input=True)
        elif last.type == EventType.RUN_FAILED:
            self._attempts.record(operation, EventType.STEP_FAILED, number, payload=last.payload, store_input=True)
        else:
            error = RunCancelled if last.type == EventType.RUN_CANCELLED else RunTerminated
            facts: dict[str, Any] = msgspec.json.decode(last.detail) if last.detail else {}
            self._fail(operation, error(row.id, reason=str(facts.get("reason") or "")))

    def _fail(self, operation: StepOperation, error: Exception) -> None:
        payload = encode_exception(error, self._attempts.run.execution.codec)
        number = operation.attempts + 1
        self._attempts.record(operation, EventType.STEP_FAILED, number, payload=payload, store_input=True)

    def _recall(self, run_id: str) -> None:
        """Ask a run to stop. That it has ended, or was never started, is as good."""
        host = self._attempts.run.host
        facts = {"actor": f"run {self._attempts.run.id}", "reason": GIVEN_UP, "request": uuid7()}
        message = Message(run_id, 0, CANCEL, host.now(), msgspec.json.encode(facts))
        answer = Answer(host.loop)
        answer.future.add_done_callback(lambda _: host.on_message(run_id))
        host.writer.submit(Send(message), answer)


def report(caller: Caller, run_id: str, now: int) -> Message:
    """Return the message by which a run that executes a step tells its caller that it has ended."""
    detail = msgspec.json.encode({"op": caller.op, "run": run_id})
    return Message(caller.run, 0, RETURNED, now, detail)


def _digest(run_id: str, step: str) -> int:
    """Return what tells the run that executes a step from any other run of its id."""
    data = f"step\0{run_id}\0{step}".encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)
