"""The seam between the engine and a database: one protocol, and how a backend is found.

A backend is synchronous. It may be called from several threads; it serialises what its connection needs serialised.
Writes are data (`perdure.model.write`); no SQL, placeholder or isolation level crosses this line. Adding a backend is
adding ``store/<scheme>.py`` with an ``open_store(url, options)``, and its SQL folder ``store/sql/<scheme>/``.

What every backend must keep, and the conformance suite in `perdure.testing.conformance` checks:

* **S1** A commit is atomic, and durable in the promised mode before `commit` returns.
* **S2** ``event`` has the primary key (run_id, seq) and is append-only; a taken place refuses the append.
* **S3** A refused write leaves nothing behind and takes no neighbour with it.
* **S4** A run row changes only by a compare-and-set on its state and epoch, in the transaction of the append.
* **S5** After a purge nothing can be appended to the run, by anyone.
* **S6** No error is swallowed: what is not known to be committed is raised as `StoreUnavailable` with
  ``unknown=True`` once the backend could not find out by reading its own ids.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from perdure.model.cache import CacheStats
    from perdure.model.claim import Claimed, ClaimRequest, Claims
    from perdure.model.event import Event
    from perdure.model.filter import RunFilter, StoreStats
    from perdure.model.run import Heartbeat, Message, RunRow, Tombstone, WorkerRow
    from perdure.model.write import Outcome, Write
    from perdure.store.catalog.base import Catalog
    from perdure.store.migrate import SchemaText

    Decide = Callable[[RunRow, tuple[Event, ...], int], Claimed]
    """(row, recent events, now) -> what to append. Pure: called inside the claim transaction."""


class Capabilities(NamedTuple):
    """What a backend is like, so that nobody has to ask for its name."""

    name: str
    inline: bool
    """A commit takes microseconds and may run on the event loop's own thread."""
    durability: tuple[str, ...]
    """Modes it can give."""
    shared: bool
    """Other processes may use the same store at the same time."""
    file: str | None = None
    """The one file it is in: no code of users may run inside its transactions."""
    hints: bool = True
    """`Store.change_count` tells what other processes do as they do it; else only now and then that they may have
    done something."""
    sends: bool = False
    """A batch can be on its way while nobody waits for it: the store is a `Sender`."""
    tables: str | None = None
    """What stands before the name of its tables, for a connection of users to the same database, in whose transactions
    the engine may write; None where it may not. With it the store is `Joinable`."""


class StoreOptions(NamedTuple):
    """How to open a store."""

    durability: str = "host"
    busy_timeout_s: float = 10.0
    """How long a call waits for another process's lock before `StoreUnavailable`."""
    read_only: bool = False
    create: bool = True
    """Make the database if there is none; else refuse."""
    migrate: bool = True
    """Bring an empty or older schema up to date on opening; else refuse it."""
    trust_sqlite: bool = False
    """Accept an SQLite older than the WAL-reset fix: the caller vouches that it carries the patch."""


class Store(Protocol):
    """One database. Every method may raise `StoreUnavailable` (try again later) or `StoreCorrupt`."""

    capabilities: Capabilities
    """What this backend is like. Constant, but that it is known only after `open` whether hints come."""
    quiet_until: Callable[[], int]
    """Returns until when, by its clock, a claim like the last would find nothing that `change_count` does not tell of;
    0 where that is not known. No round trip: it keeps idle workers from asking."""
    now: Callable[[], int]
    """Returns the database's clock in microseconds. Never goes back within a process; costs no round trip."""

    log_ends: Callable[[], CacheStats]
    """Returns how often this process knew the end of a log that it appends to. No round trip."""

    catalog: Catalog
    """What this database knows of versions. Usable while the store is open."""

    def open(self) -> None:
        """Connect, bring the schema up to date, and check that the database gives the promised durability.

        Raises:
            UsageError: the place cannot be used: not a database, read-only, on a network file system, ...
            SchemaTooNew: a newer perdure has migrated it.
        """
        ...

    def close(self) -> None:
        """Release everything. May be called twice, and before `open`."""
        ...

    def commit(self, batch: Sequence[Write], *, block: bool = True) -> list[Outcome] | None:
        """Apply ``batch`` in one transaction and answer each write in order.

        Atomic: all writes answered with `Committed` are in one transaction, durable on return. Idempotent: an
        append or create that is already there with the same ``commit_id`` is answered with `Committed`. Later writes
        of a run in the same batch see the earlier ones. Behind a refused create or append of a run, an
        append is accepted only if its chain continues the log that is there: what builds on a refused write is
        refused too, even where its place is free. What a transaction of somebody else is in the way of for long is
        answered with `Blocked`, and holds up no neighbour for much more than a second.

        Args:
            batch: writes, applied in order.
            block: False returns None at once, with nothing done, where the call would wait for another process.
        """
        ...

    def claim(self, request: ClaimRequest, decide: Decide, *, block: bool = True) -> Claims | None:
        """Claim up to ``request.limit`` due runs in one short transaction.

        Due: unowned with ``wake_at <= now``; also, with ``take_over``, owned by a worker that is ``dead`` or ``left``.
        Only runs of the given queues *and* codes: rows that the worker cannot run never hide ones it can; with
        ``only``, that run and no other, whatever its queue. Each claim is the append that ``decide`` returns. A worker
        whose own row is not ``live`` gets nothing.

        Of each queue up to its share first, then whatever there is, in the order of the queues. Within a queue the
        order is that of `perdure.model.queue.place_of`: without ``ageing`` the highest priority, of one priority first
        runs taken over, then the earliest rank, then runs without a key before the least key, then the oldest. A run's
        rank is its ``wake_at``; runs with a partition key stand in one line per workflow, priority and key, and the
        rank of its first run is not before the key's last turn in a ``fair`` queue: keys take turns.

        A run that keeps a slot of a full queue, whose owner is gone for longer than `perdure.store.slots.STRANDED_US`
        and whose code is not among those given, is handed to ``decide`` too, after all others and beside the limit:
        it is to be handed over (`perdure.model.claim.hand_over`) to whoever has its code.

        Limits are checked and taken in this transaction, by `perdure.model.queue.Allowance`; what they refuse hides
        nothing else. A slot is taken by every run that is owned (in a queue with ``hold_while_waiting`` also by one
        that waits and was owned): it ends with the ownership, so that no write but a claim concerns it. A run taken
        over keeps its slot. Nothing is claimed from a queue that is paused.

        Args:
            request: who claims, and what it can serve.
            decide: returns the append that claims a run. Pure.
            block: False returns None at once, with nothing done, where the call would wait for another process.
        """
        ...

    def register(self, worker: WorkerRow) -> None:
        """Insert the row of a worker that begins its life. Its id is new by construction.

        Done twice, because an answer was lost, it changes nothing.
        """
        ...

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        """Extend a live worker's lease to now + ``lease_us`` and say what it owns. Never an upsert.

        A lease of 0 ends the life of the worker: its row becomes ``left``, and the answer is no longer ``alive``.
        """
        ...

    def owned(self, worker_id: str) -> dict[str, tuple[int, int]]:
        """Return run id to (epoch, inbox_n) of every run the worker owns. A plain read."""
        ...

    def sweep(self) -> list[str]:
        """Mark live workers whose lease has ended as ``dead``, by compare-and-set, and return their ids.

        Also forgets rows of dead or left workers that own nothing any more, and makes a dead row for an owner that
        has none, so that its runs are taken over.
        """
        ...

    def get(self, run_id: str) -> RunRow | Tombstone | None:
        """Return a run, what a purged one left, or None."""
        ...

    def going_on(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that are neither ended nor parked, once each. One query, however many they are."""
        ...

    def load(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events with ``seq > after`` in order. A negative ``after`` means the last ``-after`` events.

        Raises:
            StoreCorrupt: an event is missing, or not what was written. A wrong log is never returned.
        """
        ...

    def inbox(self, run_id: str) -> list[Message]:
        """Return the messages that wait, in order."""
        ...

    def list(self, query: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        ...

    def stats(self) -> StoreStats:
        """Count what there is, and say what this database really is and what is wrong with it. For people.

        Includes the state of every queue that has settings or open runs, by name.
        """
        ...

    def change_count(self) -> int:
        """Return a number that differs from an earlier one when another process has written since. A hint; cheap."""
        ...


class Flight(Protocol):
    """A batch that is being committed while nobody waits. Used on one thread."""

    error: Exception | None
    """Why it is over, if that is not because all of it was committed."""
    landed: Callable[[], None]
    """Called when all of it was committed. May be set."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in one way or another."""
        ...

    @property
    def outcomes(self) -> list[Outcome]:
        """How each write ended, when it is over without an error."""
        ...

    @property
    def deadline(self) -> float:
        """When it is to be ended by `expire`, in seconds of the monotonic clock."""
        ...

    @property
    def unsent(self) -> bool:
        """Whether `advance` is to be called when the file can be written to, too."""
        ...

    def fileno(self) -> int:
        """Return the file that becomes readable when `advance` has something to do."""
        ...

    def advance(self) -> bool:
        """Do what can be done without a wait, and return whether it is over."""
        ...

    def expire(self) -> None:
        """End it: it has taken too long."""
        ...

    def abandon(self) -> None:
        """End it without caring what becomes of the batch."""
        ...


class Sender(Store, Protocol):
    """A store that can have a batch on its way while its caller does something else."""

    def send(self, batch: Sequence[Write]) -> Flight | None:
        """Begin what `commit` does, from the thread of an event loop; None where that would take a wait.

        Until the flight is over nothing else is sent or committed. If it ends with an error, `land` must be called.
        """
        ...

    def land(self, batch: Sequence[Write], flight: Flight) -> list[Outcome]:
        """Do what is left to be done after a flight has ended with an error: what `commit` would have done then."""
        ...


class Joinable(Protocol):
    """A store in whose database transactions of users can write: its `Capabilities.tables` are known."""

    def sees(self, mark: int) -> bool:
        """Whether somebody holds the lock with this number in this database.

        Another connection that has taken it is to the same server, and on PostgreSQL to the same database: asked of the
        server itself, because addresses do not tell.
        """
        ...


_ALIASES = {"postgresql": "postgres", "mariadb": "mysql"}
"""Schemes that name a backend by another of its names."""


def backend_of(url: str) -> str:
    """Return the name of the backend a URL asks for, whether there is one or not.

    Raises:
        UsageError: it is no URL.
    """
    try:
        scheme = urlsplit(url).scheme.partition("+")[0].lower()
    except ValueError as error:
        message = f"not a database URL: {error}"
        raise UsageError(message) from None
    if not scheme.isidentifier():
        message = f"not a database URL: {scheme or 'no scheme such as sqlite://'}; expected sqlite:///file.db"
        raise UsageError(message)
    return _ALIASES.get(scheme, scheme)


def open_store(url: str, options: StoreOptions) -> Store:
    """Return the store that ``url`` names, not yet opened.

    Raises:
        UsageError: no backend for the URL's scheme, or its driver is not installed.
    """
    store: Store = _module(url).open_store(url, options)
    return store


def schema_of(url: str) -> SchemaText:
    """Return how to look what is there to migrate in the database that ``url`` names. Changes nothing.

    Raises:
        UsageError: no backend for the URL's scheme, or its driver is not installed.
    """
    look = getattr(_module(url), "schema_of", None)
    if look is None or look is schema_of:
        message = f"there are no migrations for {backend_of(url)}"
        raise UsageError(message, hint="expected sqlite:///file.db")
    found: SchemaText = look(url)
    return found


def _module(url: str) -> ModuleType:
    backend = backend_of(url)
    try:
        module = import_module(f"perdure.store.{backend}")
    except ModuleNotFoundError as error:
        if error.name == f"perdure.store.{backend}":
            message = f"no backend for {backend}://; expected sqlite:///file.db"
        else:
            message = f"{backend}:// needs a driver: pip install 'perdure[{backend}]'"
        raise UsageError(message) from None
    if getattr(module, "open_store", open_store) is open_store:  # a module of this folder that is not a backend
        message = f"no backend for {backend}://; expected sqlite:///file.db"
        raise UsageError(message)
    return module
