"""A batch that is being committed while nobody waits: sent from the event loop's thread, and taken in from there.

A thread that waits would need the GIL for every step of its way, from an event loop that is busy and slow to give it
up; so the store would have nothing to do meanwhile. What does not go as it should is for a thread nevertheless
(`perdure.store.base.Sender.land`): it has to look, and a look is a wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from perdure.model.write import COMMITTED
from perdure.store.server.dialect import LinkLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.model.write import Outcome
    from perdure.store.server.gathering import Gathering


class Sending(Protocol):
    """A transaction on its way to a server."""

    deadline: float
    """When it must have been answered, on the monotonic clock."""

    def fileno(self) -> int:
        """Return what becomes readable when an answer comes."""
        ...

    @property
    def unsent(self) -> bool:
        """Whether not all of it is in the hands of the system yet."""
        ...

    def advance(self) -> bool:
        """Send and take in what can be without a wait. Whether there is nothing more to come."""
        ...

    def finish(self) -> None:
        """Raise what the server has said, if it was anything but that all is committed."""
        ...

    def expire(self) -> bool:
        """Give up waiting. Raises `LinkLost`, unless all was answered just now."""
        ...

    def abandon(self) -> None:
        """Give the connection up."""
        ...


class Way(Protocol):
    """A connection that can be told to go on later. What it has sent is its own matter."""

    @property
    def socket(self) -> int:
        """What becomes readable when an answer comes."""
        ...

    def advance(self, sent: Any) -> bool:
        """See `Sending.advance`."""
        ...

    def answers(self, sent: Any) -> object:
        """Return what was answered, once all was; raises what the server has said instead."""
        ...

    def expire(self, sent: Any) -> None:
        """Raise `LinkLost`, unless all was answered just now."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class SentBatch:
    """A batch on its way over a connection: a `Sending`.

    Args:
        link: the connection.
        writing: the writes, whose ends are remembered once they are committed.
        sent: the transaction.
    """

    def __init__(self, link: Way, writing: Gathering, sent: Any) -> None:
        self._link = link
        self._writing = writing
        self._sent = sent
        self.deadline: float = sent.deadline

    def fileno(self) -> int:
        """Return the connection's socket."""
        return self._link.socket

    @property
    def unsent(self) -> bool:
        """Whether the socket took not all of it."""
        return bool(self._sent.unsent)

    def advance(self) -> bool:
        """Send and take in what can be without a wait."""
        return self._link.advance(self._sent)

    def finish(self) -> None:
        """Take the answers, and remember the ends of the logs."""
        self._link.answers(self._sent)
        self._writing.done()

    def expire(self) -> bool:
        """Give up waiting."""
        self._link.expire(self._sent)
        return True

    def abandon(self) -> None:
        """Give the connection up."""
        self._link.close()


class ServerFlight:
    """See the module and `perdure.store.base.Flight`.

    Args:
        writes: how many.
        send: sends them.
        over: called when nobody uses the connection any more, with the error if there was one.
    """

    def __init__(self, writes: int, send: Callable[[], Sending], over: Callable[[Exception | None], None]) -> None:
        self._writes = writes
        self._over = over
        self.error: Exception | None = None
        self.landed: Callable[[], None] = _nothing
        self._sending: Sending | None = None
        try:
            self._sending = send()
        except Exception as error:  # noqa: BLE001 - sorted out on a thread
            self._end(error)

    @property
    def outcomes(self) -> list[Outcome]:
        """How each write ended, when it is over without an error."""
        return [COMMITTED] * self._writes

    @property
    def deadline(self) -> float:
        """When it expires, on the monotonic clock."""
        return self._under_way.deadline

    def fileno(self) -> int:
        """Return the connection's socket."""
        return self._under_way.fileno()

    @property
    def unsent(self) -> bool:
        """Whether the socket has not taken all of it."""
        return self._sending is not None and self._sending.unsent

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._sending is None

    def advance(self) -> bool:
        """Do what can be done without a wait, and return whether it is over."""
        return self._sending is None or self._tried(self._sending.advance)

    def expire(self) -> None:
        """End it: it has taken too long."""
        if self._sending is not None:
            self._tried(self._sending.expire)

    def abandon(self) -> None:
        """End it without caring what becomes of the batch."""
        if self._sending is not None:
            self._sending.abandon()
            self._end(LinkLost("the batch was abandoned"))

    @property
    def _under_way(self) -> Sending:
        assert self._sending is not None  # noqa: S101 - asked for while it is not over
        return self._sending

    def _tried(self, end: Callable[[], bool]) -> bool:
        """Whether it is over, after a call that may end it."""
        try:
            if not end():
                return False
            self._under_way.finish()
        except Exception as error:  # noqa: BLE001 - sorted out on a thread
            self._end(error)
        else:
            self._end(None)
            self.landed()
        return True

    def _end(self, error: Exception | None) -> None:
        self.error, self._sending = error, None
        self._over(error)


def _nothing() -> None:
    pass
