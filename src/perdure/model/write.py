"""Writes are data: what the engine asks of a store, and what the store answers.

A store commits any number of writes in one transaction and answers each by itself: one refused write never
takes its neighbours with it. What is made by the thousand is a struct, which costs a third of a named tuple.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from perdure.model.event import Event
from perdure.model.run import Message, RunRow, Tombstone


class Create(Struct, frozen=True, gc=False):
    """Record a new run and the first events of its log.

    Answered by `Existing` when the id is taken, also by a tombstone; by `Committed` when it is taken by this very
    create, sent before; by `Counted` when the run is to be owned at once and its queue counts its claims; by `Outdated`
    when its version was chosen by what is no longer so.
    """

    row: RunRow
    events: tuple[Event, ...]
    fresh: bool
    """The id was made up just now and cannot be taken: the store need not look."""
    tags: tuple[tuple[str, str], ...] = ()
    deduplication_key: str | None = None
    """While a run of the same queue with this key has not ended, the create is answered by `Existing` with that run."""
    version_count: int | None = None
    """What the database's count of changes of versions was as the run's version was chosen; None: it has none."""


class Change(Struct, frozen=True, gc=False):
    """A change of the run row, applied only if it is in the state and epoch it is expected to be in."""

    before: str
    epoch_before: int
    after: str
    epoch: int
    owner: str | None
    wake_at: int | None
    inbox_seen: int
    """Messages taken in so far. If more were sent and the run becomes pending or waiting, it is due at once: the store
    sets ``wake_at`` to now if it is later, or None."""
    detail: str | None
    at: int
    tell: Message | None = None
    """A message for another run, put into its inbox in the same transaction. One that has ended, or is not there, does
    not get it, and the append is none the worse for it."""


class Append(Struct, frozen=True, gc=False):
    """Continue a run's log, and change what is derived from it.

    The first event's ``seq`` is the place the writer believes to be next. If it is not the next one (taken, or too
    far), or the change does not apply, the whole append is refused with `Conflict` and leaves nothing behind.
    """

    run_id: str
    events: tuple[Event, ...]
    """At least one."""
    change: Change | None = None
    consumed: tuple[int, ...] = ()
    """Numbers of the inbox messages that these events take in."""


class Send(NamedTuple):
    """Put a message into a run's inbox, and wake the run if it waits.

    ``message.n`` is ignored: the store numbers it. Answered by `Closed` for a terminal run, `Missing` for an
    unknown one.
    """

    message: Message


class Purge(NamedTuple):
    """Delete a terminal run with its whole history and leave a tombstone."""

    run_id: str
    at: int
    actor: str | None
    reason: str | None


class SetQueue(NamedTuple):
    """Change settings of a queue, which need not exist before, and record who did.

    From the answer `Committed` on every claim of the queue obeys. Runs that are owned by then are counted too. Done
    twice, it changes nothing the second time.
    """

    queue: str
    values: tuple[tuple[str, int | None], ...]
    """Settings by name, as `perdure.model.queue.QueueRow` has them; the others stay."""
    at: int
    actor: str
    reason: str
    commit_id: int
    declared: bool = False
    """The code says so: nothing is changed unless it says something else than the last time."""


class Upgrade(NamedTuple):
    """Bind a run that nobody owns to another version, and record who did and why.

    The append's change raises the epoch by one, so that whoever owned the run is refused from then on. It is refused as
    an append is, and besides with `Conflict` if the run is bound to another version than it is believed to be, and with
    `Outdated` if the new version was chosen by what is no longer so. It comes alone in its part of a batch.
    """

    append: Append
    from_version: int
    to_version: int
    label: str
    """What the new version goes by."""
    plan_id: str | None
    forced: bool
    """The check of the run's history had found something that nobody accepted."""
    actor: str
    reason: str
    version_count: int | None = None
    """As in `Create`."""


Write = Create | Append | Send | Purge | SetQueue | Upgrade


class Committed(NamedTuple):
    """Done, and durable in the promised mode."""


class Existing(NamedTuple):
    """The id of a `Create` is taken by this run, or by what a purged run left behind."""

    row: RunRow | Tombstone


class Conflict(NamedTuple):
    """The log is not where the writer believed it to be, or the run not in the state it expected."""

    tail: int | None
    """The log's true last seq; None where there is no log any more."""


class Missing(NamedTuple):
    """There is no such run (a purged one included)."""

    tombstone: Tombstone | None = None


class Closed(NamedTuple):
    """The run's state does not allow the write: it is terminal (`Send`) or not yet terminal (`Purge`)."""

    status: str


class Counted(NamedTuple):
    """The queue counts its claims: a run is not claimed in the transaction that creates it."""

    queue: str


class Outdated(NamedTuple):
    """Versions, labels or routes have changed since the version of a new run was chosen: choose again."""

    version_count: int


class Blocked(NamedTuple):
    """A transaction of somebody else holds what the write needs, and the wait would be too long for its neighbours.

    Nothing of it is written, and nothing is known of how it will end: it is to be tried again.
    """

    run_id: str


class Failed(NamedTuple):
    """This write alone cannot be stored, for a reason of its own (a value the database refuses)."""

    error: Exception


Outcome = Committed | Existing | Conflict | Missing | Closed | Counted | Outdated | Blocked | Failed
COMMITTED = Committed()
