"""What a database server's backend adds to what they all share."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.filter import Fact
    from perdure.model.write import Write
    from perdure.store.base import Capabilities
    from perdure.store.server.clock import ServerClock
    from perdure.store.server.flight import Sending
    from perdure.store.slots import Call as Named
    from perdure.store.tails import Tails

Value = str | bytes | int | tuple[str, ...] | None
"""What a statement takes; a tuple is a list of texts."""


class Fault(Enum):
    """What an error of a driver is about."""

    WRITE = "write"
    """What was asked for: the same would be refused again."""
    AGAIN = "again"
    """A deadlock or the like: the same transaction may well succeed at once."""
    BLOCKED = "blocked"
    """Another transaction holds what is needed, and has not let it go in time."""
    ENVIRONMENT = "environment"
    """The server, the disk, the rights: nothing that was asked for is to blame."""


class LinkLost(Exception):
    """The connection is gone, or answered in a way that nobody can be sure of. It is not used again.

    Attributes:
        committing: a COMMIT was under way, so that nobody knows what became of it.
        session: what the server knows the connection by, for `Dialect.end_session`; empty where there is nothing.
    """

    def __init__(self, text: str, *, committing: bool = False, session: str = "") -> None:
        super().__init__(text)
        self.committing = committing
        self.session = session


class Result(NamedTuple):
    """What a statement gave."""

    rows: list[tuple[Any, ...]]
    affected: int
    """Rows written."""


class Link(Protocol):
    """One connection, used by one thread at a time. What is called outside of a transaction is one by itself."""

    deadline_s: float
    """How long a call may take before the connection is given up."""
    usable: bool
    """False once it is lost."""

    def execute(self, name: str, *values: Value) -> Result:
        """Run a statement of ``queries.sql``.

        Raises:
            LinkLost: see there.
            Exception: an error of the driver; the transaction can only be undone.
        """
        ...

    def many(self, *calls: tuple[str | Value, ...]) -> list[Result]:
        """Run statements, each a name and its values, in as few round trips as the server allows."""
        ...

    def query(self, sql: str, values: Sequence[Value]) -> Result:
        """Run a statement put together from named parts; a question mark stands for a value."""
        ...

    def begin(self) -> None:
        """Begin a transaction at READ COMMITTED."""
        ...

    def commit(self) -> None:
        """End the transaction, and make sure that it was not ended in another way.

        Raises:
            LinkLost: it is not known how it ended (``committing``).
        """
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there is one. Raises `LinkLost` if even that fails."""
        ...

    def heard(self) -> int:
        """Return how many hints of other processes have come so far, without waiting for any."""
        ...

    def close(self) -> None:
        """Let the connection go. Never raises."""
        ...


L = TypeVar("L", bound=Link)


class Dialect(Protocol[L]):
    """One kind of server."""

    capabilities: Capabilities
    sql: dict[str, str]
    """Named statements and parts."""
    place: str
    """The database, as it may be shown."""

    def connect(self, clock: ServerClock, deadline_s: float) -> L:
        """Make a connection, and tell ``clock`` what time it is whenever the server says so.

        Raises:
            StoreUnavailable: not now.
            UsageError: never, as things are.
        """
        ...

    def prepare(self, link: L, *, migrate: bool, create: bool, read_only: bool) -> None:
        """Bring the schema up to date, and check that the server gives what was promised.

        Raises:
            SchemaTooNew: a newer release was here.
            UsageError: the server does not give it, or nothing may be changed and something has to be.
        """
        ...

    def apply(self, link: L, writes: Sequence[Write], tails: Tails) -> None:
        """Commit a batch in a transaction of its own, all of it or nothing.

        Args:
            link: not in a transaction.
            writes: the batch.
            tails: what is known to be in logs.

        Raises:
            Doubt: something is not as it was believed to be; the transaction may still have to be undone.
            Exception: an error of the driver, likewise.
        """
        ...

    def send(self, link: L, writes: Sequence[Write], tails: Tails) -> Sending:
        """Have on its way what `apply` commits.

        Raises:
            LinkLost: the connection broke while it was sent.
            Exception: it cannot be sent, and nothing was.
        """
        ...

    def attempt(self, link: L, writes: Sequence[Write], ends: Tails, *, hurry: bool = False) -> None:
        """Apply writes inside the open transaction, all of them or none; it goes on either way.

        Args:
            link: in a transaction.
            writes: what to apply.
            ends: what is known to be in logs; stays as it is.
            hurry: wait for no lock, or hardly.

        Raises:
            Doubt: they do not fit; nothing of them is left.
            Exception: an error of the driver, likewise.
        """
        ...

    def conclude(self, link: L, writes: Sequence[Write], ends: Tails, calls: Sequence[Named]) -> None:
        """Apply writes, run statements and commit, in as few round trips as the server allows.

        Args:
            link: in a transaction.
            writes: what to apply.
            ends: what is known to be in logs; stays as it is.
            calls: statements, each a name and its values, to be run after that.

        Raises:
            LinkLost: it is not known how the transaction ended (``committing``).
            Doubt: the writes do not fit; the transaction has to be undone.
            Exception: an error of the driver, likewise.
        """
        ...

    def beat(self, link: L, worker_id: str, lease_us: int, *, owned: bool) -> Sequence[tuple[Any, ...]] | None:
        """Extend a live worker's lease, or end it if ``lease_us`` is 0.

        Returns:
            (id, epoch, inbox_n) of each run that it owns, which may be left out unless ``owned``; None if it is not
            live.
        """
        ...

    def end_session(self, link: L, session: str) -> None:
        """See to it that the server does no more for a connection that was lost: it may not have noticed."""
        ...

    def seal(self, link: L) -> None:
        """Make the end of the open transaction wait until what was recorded before it is as durable as promised.

        What is found to be recorded may be so on the primary alone, if the wait for a standby was cut short.
        """
        ...

    def listen(self, link: L) -> bool:
        """Have hints of other processes sent to this connection; False where there are none to be had."""
        ...

    def hint(self, link: L) -> None:
        """Send a hint to other processes, in a transaction of its own."""
        ...

    def facts(self, link: L) -> tuple[Fact, ...]:
        """Return what this server really is, and what is wrong with it."""
        ...

    def fault(self, error: Exception) -> Fault:
        """Say what an error is about."""
        ...

    def translate(self, error: Exception) -> Exception | None:
        """Return what to raise instead of an error; None if it is not one of the driver."""
        ...
