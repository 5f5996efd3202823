"""What a body asks of its run: operations, timers, its time, its randomness.

`Requests` is the side of a run that operations and author functions see; `perdure.kernel.execution.Execution` adds the
side that the runtime drives.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from asyncio import events
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from perdure.errors import UsageError
from perdure.kernel.definition import check_name
from perdure.kernel.failure import FailureTrail
from perdure.kernel.frozen import NOTHING, Frozen
from perdure.kernel.kinds.timer import Timer
from perdure.kernel.loop import RunLoop, current_task, make_loop
from perdure.kernel.operation import Operation, OperationFuture
from perdure.kernel.scope import Evicted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from perdure.kernel.marker import Marker
    from perdure.kernel.step_run import Caller
    from perdure.model.event import Event

logger: logging.Logger = logging.getLogger("perdure.run")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_DUE = 253_402_300_799_000_000
"""The end of the year 9999 in microseconds: what every database and `datetime` can represent."""


class Requests:
    """What a body asks for, until it is answered."""

    is_body = True
    # What begins the same for every run stands here: runs are made by the thousand. What every step asks for does
    # not: to read it from the class takes ten times as long.
    logical_time: int = 0
    epoch: int = 0
    claims: int = 0
    live: bool = False
    """False while the log is being replayed: nothing may start."""
    ahead: Collection[Event] = ()
    """What is recorded and not delivered yet, oldest first."""
    frozen: Frozen = NOTHING
    """Configuration and data files of the version it is bound to."""
    caller: Caller | None = None
    """Whose step it executes, if it is such a run."""
    _random: Random | None = None

    def __init__(self, run_id: str, codec: Any, steps: Any, info: Any = None) -> None:
        self.run_id = run_id
        self.dead: bool = False
        self.bridge: Any = None
        self.codec = codec
        self.steps = steps
        self.info = info
        self.loop: RunLoop = make_loop(self, run_id)
        self.failures: FailureTrail = FailureTrail()
        self.given_up: list[Operation] = []
        self.fresh: list[Operation] = []
        self.unrecorded: list[Operation] = []
        self._pending: dict[str, Operation] = {}
        self.abandoned: dict[str, tuple[str, str]] = {}
        """Kind and name of what the body has given up, by id."""
        self.patches: dict[str, bool] = {}
        """Answers given by `perdure.patched`, and the patches the log says were taken."""

    def check_alive(self) -> None:
        """Refuse every operation of a body that is being unwound."""
        if self.dead:
            raise Evicted

    def next_id(self) -> str:
        """Take the next structural id below the current task.

        Raises:
            UsageError: the caller is not on the run's own loop, for instance inside ``asyncio.run`` in a sync body.
        """
        if self.dead:
            raise Evicted
        task: Any = current_task(self.loop)
        if task is None or (self.bridge is not None and events._get_running_loop() is not self.loop):  # noqa: SLF001
            return self._stray_id()  # from a sync body's thread the root task may still seem to be the current one
        op_id: str = task.next_id()
        return op_id

    def _stray_id(self) -> str:
        if self.loop is not events._get_running_loop():  # noqa: SLF001 - the documented hook for loops
            message = f"an operation of run {self.run_id!r} was called on another event loop"
            raise UsageError(message, hint="call it from the workflow body itself")
        return self.loop.next_orphan()

    def request(self, operation: Operation) -> OperationFuture:
        """Register what the body asks for and return the future to await."""
        loop = self.loop
        future = OperationFuture(loop=loop)
        future.number = loop.next_number()
        future.operation = operation
        operation.future = future
        self.register(operation)
        return future

    def ask(self, operation: Operation) -> asyncio.Future[Any]:
        """Register what the body asks for, and return a plain future: whoever awaits it abandons the operation himself.

        It is seen by nobody else, so it needs no hash of its own; and awaiting it is much cheaper.
        """
        loop = self.loop
        future = operation.future = asyncio.Future(loop=loop)
        loop.next_number()  # as if it had one: the numbers that others have must not depend on it
        self.register(operation)
        return future

    def register(self, operation: Operation) -> None:
        """Make an operation pending."""
        self._pending[operation.id] = operation
        if self.failures.watching:
            self.failures.born(operation.id)
        if operation.unrecorded:
            self.unrecorded.append(operation)
            self.fresh.append(operation)
        elif self.live:
            self.fresh.append(operation)

    def mark(self, kind: type[Marker], name: str, value: Any, *, store_none: bool) -> OperationFuture:
        """Register a marker."""
        check_name(name, f"the name of a {kind.kind}")
        if self.bridge is not None:
            return cast("OperationFuture", self.bridge.mark(kind, name, value, store_none=store_none))
        return self.mark_now(kind, name, value, store_none=store_none)

    def mark_now(self, kind: type[Marker], name: str, value: Any, *, store_none: bool) -> OperationFuture:
        """Register a marker from the run's own loop."""
        op_id = self.next_id()
        payload = None if value is None and not store_none else self.codec.encode(value)
        return self.request(kind(self, op_id, name, payload))

    def timer(
        self,
        delay: float,
        when: float | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> Timer:
        """Register a timer ``delay`` seconds from now, or at the logical time ``when``."""
        seconds = delay if when is None else when
        if not math.isfinite(seconds):
            message = f"cannot wait {seconds} seconds"
            raise ValueError(message)
        base = self.logical_time if when is None else 0
        due = base + round(seconds * 1_000_000)
        if due > LATEST_DUE:
            message = f"cannot wait until after the year 9999 ({seconds} seconds)"
            raise ValueError(message)
        op_id = self.next_id()
        timer = Timer(self, op_id, due, callback, args, context or contextvars.copy_context())
        self.register(timer)
        return timer

    def abandon(self, operation: Operation) -> None:
        """Forget a pending operation: its record, should one come, is for the audit only."""
        if self._pending.pop(operation.id, None) is not None:
            self.abandoned[operation.id] = (operation.kind, operation.name)
            if self.live and not self.dead:
                self.given_up.append(operation)

    def is_abandoned(self, operation: Operation) -> bool:
        """Whether `abandon` was called for it."""
        return operation.id in self.abandoned

    def has_asked(self, op_id: str) -> bool:
        """Whether the body waits for this operation, or has given it up."""
        return op_id in self._pending or op_id in self.abandoned

    def now(self) -> datetime:
        """Return the run's logical time."""
        return EPOCH + timedelta(microseconds=self.logical_time)

    @property
    def random(self) -> Random:
        """The run's random generator, seeded by its id."""
        self.check_alive()
        if self._random is None:
            self._random = Random(self.run_id)  # repeatable on purpose
        return self._random

    def uuid4(self) -> UUID:
        """Return a UUID that is the same on every replay."""
        return UUID(int=self.random.getrandbits(128), version=4)

    def report(self, context: dict[str, Any]) -> None:
        """Log what asyncio would have printed."""
        logger.warning("run %s: %s", self.run_id, context.get("message"), exc_info=context.get("exception"))
