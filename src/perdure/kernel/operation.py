"""An operation: something a body asked for that is answered by a recorded event.

One file per kind in `perdure.kernel.kinds`. A kind says how its request starts (through the `Port`, the only two
effects there are) and how its record settles the body's future. The timer is the smallest example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from perdure.kernel.loop import RunFuture
from perdure.model.status import EventType

if TYPE_CHECKING:
    from perdure.kernel.requests import Requests
    from perdure.model.event import Draft, Event


class Port(Protocol):
    """What an operation may ask of the runtime once the log has no record of it."""

    def now(self) -> int:
        """Return the database's clock in microseconds."""
        ...

    def attempt(self, operation: Any) -> None:
        """Call the operation's function outside the body, and record how it ended."""
        ...

    def wake(self, operation: Operation, due: int) -> None:
        """Record ``operation.fired(now)`` when the database's clock has reached ``due`` (microseconds)."""
        ...

    def record(self, draft: Draft) -> None:
        """Append an event as soon as the run's turn comes."""
        ...


NOTES = frozenset(
    {
        EventType.STEP_ATTEMPT_FAILED, EventType.STEP_INTENT, EventType.STEP_HEARTBEAT, EventType.STEP_CANCELLED,
        EventType.STEP_SENT,
    },
)  # fmt: skip
"""Events that tell about an operation without answering it. One that was cancelled may be pending again, when an
operator's retry has voided the failure because of which it was given up."""


class OperationFuture(RunFuture):
    """The future a body awaits. Giving it up tells the run, so that its attempt can be stopped."""

    __slots__ = ("operation",)
    operation: Operation

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the wait; the operation is abandoned."""
        if super().cancel(msg):
            self.operation.run.abandon(self.operation)
            return True
        return False


class Operation:
    """A request of the body, until its record is delivered."""

    __slots__ = ("digest", "future", "id", "name", "run", "unrecorded")
    kind: ClassVar[str]

    def __init__(self, run: Requests, op_id: str, name: str, digest: int | None = None) -> None:
        self.run: Requests = run
        self.id: str = op_id
        self.name: str = name
        self.digest: int | None = digest
        self.unrecorded: bool = False
        """Whether its answer is never recorded, so that it runs on replay too."""
        self.future: Any = None

    def start(self, port: Port) -> None:
        """Begin: called once, when the log is exhausted and holds no answer."""
        raise NotImplementedError

    def settle(self, event: Event) -> None:
        """Answer the body from the record. Called only while the future is not done."""
        raise NotImplementedError

    def answer(self, payload: bytes | None, error: bytes | None) -> None:
        """Answer the body without a record. Only for kinds that can be `unrecorded`."""
        raise NotImplementedError

    def note(self, event: Event) -> None:
        """Take in an event of `NOTES`, or the record of a failure that an operator voided."""

    def could_be(self, event: Event) -> bool:
        """Whether ``event``, of the same kind and name, records this very request: with the same arguments."""
        return self.digest == event.digest

    @property
    def content(self) -> int | None:
        """What it is asked for with, as a number that is the same for the same request."""
        return self.digest

    def release(self) -> None:
        """Let go of what refers back to the operation, once it is answered."""
        self.future = None

    def fired(self, now: int) -> Draft:
        """Return the event that records that the time asked for has come."""
        raise NotImplementedError
