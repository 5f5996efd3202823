"""One row of a run's log, and how a row is sealed.

Times are integers: microseconds since the Unix epoch, by the database's clock.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_pack = msgspec.msgpack.Encoder().encode
_new = tuple.__new__
CHAIN_START = bytes(16)
"""What the first event of a log is chained to."""


class Event(NamedTuple):
    """A recorded fact. The field order is the column order of the table ``event`` in every backend."""

    run_id: str
    seq: int
    """1, 2, 3, ... without a gap; with ``run_id`` the primary key, and so the lock."""
    type: str
    """A value of `EventType`."""
    op: str | None
    """Structural id of the operation the event belongs to; None for events of the run itself."""
    kind: str | None
    """Kind of the operation: step, timer, checkpoint, value, ..."""
    name: str | None
    """Name of the operation: the step's, the checkpoint's, ..."""
    attempt: int
    """Number of the attempt the event tells about, from 1; 0 where there are no attempts."""
    at: int
    epoch: int
    """Ownership epoch of the writer; grows by one with each claim."""
    commit_id: int
    """Chosen by the writer and unique per append: how a lost reply to COMMIT is resolved."""
    state: str | None
    """``before>after`` where the event changes the run's state."""
    digest: int | None
    """Digest of the operation's encoded arguments: a replay with other arguments is warned about."""
    detail: bytes | None
    """Facts of the engine as a JSON object: actor, reason, worker, wake_at, ..."""
    input: bytes | None
    """Codec-encoded arguments."""
    payload: bytes | None
    """Codec-encoded result, error or value."""
    chain: bytes
    """Digest over this row and the chain of the row before it."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event that has no place in the log yet. A struct: made for every event, at a third of a named tuple's cost."""

    type: str
    at: int
    op: str | None = None
    kind: str | None = None
    name: str | None = None
    attempt: int = 0
    state: str | None = None
    digest: int | None = None
    detail: bytes | None = None
    input: bytes | None = None
    payload: bytes | None = None


class Tail(NamedTuple):
    """The end of a log: all that a writer needs to know to continue it."""

    seq: int
    at: int
    chain: bytes


EMPTY_TAIL = Tail(0, 0, CHAIN_START)


def sealed(run_id: str, seq: int, draft: Draft, at: int, epoch: int, commit_id: int, previous: bytes) -> Event:
    """Return ``draft`` as the event at ``seq``, chained to the event before it.

    The chain is BLAKE2b, 16 bytes, over the chain before and the contents packed as one MessagePack array: run_id, seq,
    at, epoch, type, op, kind, name, attempt, state, digest, detail, input, payload. ``commit_id`` is left out: it says
    which transaction carried the row, not what the row says.
    """
    kind, op, okind, name, attempt = draft.type, draft.op, draft.kind, draft.name, draft.attempt
    state, digest, detail, given, payload = draft.state, draft.digest, draft.detail, draft.input, draft.payload
    contents = (run_id, seq, at, epoch, kind, op, okind, name, attempt, state, digest, detail, given, payload)
    chain = blake2b(previous + _pack(contents), digest_size=16).digest()
    # Straight to the tuple: the generated constructor costs twice as much, and this is the hottest of all paths.
    return _new(
        Event,
        (
            run_id,
            seq,
            kind,
            op,
            okind,
            name,
            attempt,
            at,
            epoch,
            commit_id,
            state,
            digest,
            detail,
            given,
            payload,
            chain,
        ),
    )


def seal(run_id: str, tail: Tail | Event, drafts: Iterable[Draft], epoch: int, commit_id: int) -> tuple[Event, ...]:
    """Number, time and chain ``drafts`` as the continuation of a log that ends in ``tail``.

    ``at`` never decreases within a run, whatever the clock did.
    """
    seq, last, chain = tail.seq, tail.at, tail.chain
    events = []
    for draft in drafts:
        seq += 1
        last = max(draft.at, last)
        event = sealed(run_id, seq, draft, last, epoch, commit_id, chain)
        chain = event.chain
        events.append(event)
    return tuple(events)


def tail_of(event: Event) -> Tail:
    """Return the tail that a log has when ``event`` is its last."""
    return Tail(event.seq, event.at, event.chain)


def draft_of(event: Event) -> Draft:
    """Return an event without its place."""
    kind, op, okind, name, attempt, at, _, _, state, digest, detail, given, payload, _ = event[2:]
    return Draft(kind, at, op, okind, name, attempt, state, digest, detail, given, payload)


def broken_link(run_id: str, tail: Tail, events: Iterable[Event]) -> int | None:
    """Return the first seq at which ``events`` do not continue a log that ends in ``tail``; None if they do.

    Finds a missing, doubled or moved event and any change of an event's contents.
    """
    seq, _, chain = tail
    for event in events:
        seq += 1
        expected = sealed(run_id, seq, draft_of(event), event.at, event.epoch, event.commit_id, chain)
        if event != expected:
            return seq
        chain = expected.chain
    return None
