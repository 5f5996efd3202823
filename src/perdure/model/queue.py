"""Queues: what may be set, what a claim may take because of it, and how the settings change.

Everything here is pure and the same for every backend: a store counts what a queue has in use, `Allowance` says what
may still be taken, `revised` says what a change of the settings leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.errors import InvalidValue
from perdure.model.duration import Duration, microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.model.write import SetQueue

MOST = 1_000_000
"""Largest limit and weight."""
MOST_RATE_BUCKETS = 200
"""Into how many parts a rate's window is divided for counting: what is counted too much is one part of it."""
LIMITS = ("concurrency", "concurrency_per_worker", "concurrency_per_key")
FLAGS = ("fair", "hold_while_waiting")
SETTINGS = (*LIMITS, "rate_limit", "rate_us", "ageing_us", *FLAGS)
"""What a declaration sets; ``paused`` is an operator's alone."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many claims in every span of time, by all workers together.

    Attributes:
        limit: most claims in any window of length ``per``.
        per: length of the window.

    Raises:
        InvalidValue: a value is out of range.
    """

    limit: int
    per: Duration = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check the values, so that a wrong one shows where it is written."""
        _check_count("Rate(limit=...)", self.limit)
        if not 1_000 <= microseconds(self.per, "Rate(per=...)") <= 366 * 86_400_000_000:
            message = f"Rate(per=...) must be between 1 ms and 366 days, not {self.per!r}"
            raise InvalidValue(message)


@dataclass(frozen=True, slots=True)
class Queue:
    """A named queue and its limits. Given to an engine, it declares them in the database.

    A declaration takes effect when it is new: what an operator sets afterwards stays until the code says something
    else. Limits are checked and taken in the transaction of the claim, so they hold over all workers.

    Attributes:
        name: name of the queue.
        concurrency: runs of the queue that may be claimed at once, by all workers together.
        concurrency_per_worker: runs of the queue that one worker may have at once.
        concurrency_per_key: runs with the same partition key that may be claimed at once.
        rate: most claims in a span of time, by all workers together.
        ageing: a waiting run gains one level of priority in each such span; None: priorities are strict.
        fair: partition keys take turns; otherwise the run that is longest due comes first.
        hold_while_waiting: a run that waits (for a timer, a retry, a message) keeps its place in the limits;
            otherwise it gives it up and takes one again when it goes on.
        weight: share of this worker's claims that the queue gets, beside the other queues it serves. Not stored.

    Raises:
        InvalidValue: a value is out of range.
        UsageError: the name cannot name a queue.
    """

    name: str
    concurrency: int | None = field(default=None, kw_only=True)
    concurrency_per_worker: int | None = field(default=None, kw_only=True)
    concurrency_per_key: int | None = field(default=None, kw_only=True)
    rate: Rate | None = field(default=None, kw_only=True)
    ageing: Duration | None = field(default=None, kw_only=True)
    fair: bool = field(default=False, kw_only=True)
    hold_while_waiting: bool = field(default=False, kw_only=True)
    weight: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Check the values, so that a wrong one shows where it is written."""
        if not isinstance(self.name, str) or not self.name:
            message = f"Queue(name) must be a text, not {self.name!r}"
            raise InvalidValue(message)
        check_settings(self.values())
        _check_count("Queue(weight=...)", self.weight)

    def values(self) -> dict[str, int | None]:
        """Return the settings as they are stored."""
        if self.rate is not None and not isinstance(self.rate, Rate):
            message = f"Queue(rate=...) must be a Rate such as Rate(100, per='1m'), not {self.rate!r}"
            raise InvalidValue(message)
        flags: dict[str, int | None] = {}
        for name in FLAGS:
            if type(getattr(self, name)) is not bool:
                message = f"Queue({name}=...) must be True or False, not {getattr(self, name)!r}"
                raise InvalidValue(message)
            flags[name] = int(getattr(self, name))
        return {
            **{name: getattr(self, name) for name in LIMITS},
            "rate_limit": None if self.rate is None else self.rate.limit,
            "rate_us": None if self.rate is None else microseconds(self.rate.per),
            "ageing_us": None if self.ageing is None else microseconds(self.ageing, "Queue(ageing=...)"),
            **flags,
        }


def check_settings(values: Mapping[str, int | None]) -> None:
    """Check values as they are stored, all or some.

    Raises:
        InvalidValue: one is out of range; names it.
    """
    for name in LIMITS:
        if values.get(name) is not None:
            _check_count(f"a queue's {name}", values[name])
    if values.get("ageing_us") is not None and not 1_000 <= (values["ageing_us"] or 0) <= 366 * 86_400_000_000:
        message = "a queue's ageing must be between 1 ms and 366 days for one level of priority"
        raise InvalidValue(message)


def _check_count(what: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST:
        message = f"{what} must be a whole number from 1 to {MOST:,}, not {value!r}"
        raise InvalidValue(message)


class QueueRow(NamedTuple):
    """The settings of a queue as they are stored. The field order is the column order of the table ``queue``.

    A queue without a row has no limits.
    """

    name: str
    concurrency: int | None = None
    concurrency_per_worker: int | None = None
    concurrency_per_key: int | None = None
    rate_limit: int | None = None
    rate_us: int | None = None
    ageing_us: int | None = None
    fair: int = 0
    hold_while_waiting: int = 0
    paused: int = 0
    declared: str | None = None
    """What the code declared last: a JSON object."""
    changed_at: int = 0
    changes: int = 0
    """Number of changes so far."""

    @property
    def is_limited(self) -> bool:
        """Whether its runs take slots."""
        return not self.concurrency is self.concurrency_per_worker is self.concurrency_per_key is None

    @property
    def is_counted(self) -> bool:
        """Whether a run of it can only be claimed by a claim, and not as it is created."""
        return bool(self.is_limited or self.rate_limit is not None or self.paused or self.fair)


class QueueChange(NamedTuple):
    """Who changed a queue, and what. The field order is the column order of the table ``queue_change``."""

    queue: str
    n: int
    """1, 2, 3, ... per queue."""
    at: int
    actor: str
    reason: str
    commit_id: int
    """Chosen by the writer: how a lost reply to COMMIT is resolved."""
    change: str
    """JSON object: setting to [before, after]."""


def revised(row: QueueRow | None, write: SetQueue) -> tuple[QueueRow, QueueChange] | None:
    """Return a queue's settings after a change, and the record of it; None if there is nothing to do.

    Args:
        row: as stored; None if the queue has no settings yet.
        write: what is to be set.
    """
    before = row or QueueRow(write.queue)
    after = QueueRow(**{**before._asdict(), **dict(write.values)})
    if write.declared:
        said = msgspec.json.encode(dict(write.values)).decode()
        if before.declared == said:
            return None
        after = after._replace(declared=said)
    differing = {
        name: [getattr(before, name), getattr(after, name)]
        for name in (*SETTINGS, "paused")
        if getattr(before, name) != getattr(after, name)
    }
    if row is not None and not differing and not write.declared:
        return None
    after = after._replace(changed_at=max(write.at, before.changed_at), changes=before.changes + 1)
    record = QueueChange(
        write.queue, after.changes, after.changed_at, write.actor, write.reason, write.commit_id,
        msgspec.json.encode(differing).decode(),
    )  # fmt: skip
    return after, record


class Usage(NamedTuple):
    """What a queue has in use, as a claim finds it."""

    total: int = 0
    """Slots taken."""
    of_worker: int = 0
    """Slots taken by runs of the claiming worker."""
    of_key: Mapping[str, int] = {}
    """Partition key to the slots its runs have."""
    starts: int = 0
    """Claims in the window of the rate."""


class Allowance:
    """What one claim may still take from a queue."""

    def __init__(self, row: QueueRow | None, usage: Usage) -> None:
        row = row or QueueRow("")
        self.paused: bool = bool(row.paused)
        self._slots = None if row.concurrency is None else row.concurrency - usage.total
        self._of_worker = None if row.concurrency_per_worker is None else row.concurrency_per_worker - usage.of_worker
        self._per_key = row.concurrency_per_key
        self._of_key = dict(usage.of_key)
        self._starts = None if row.rate_limit is None else row.rate_limit - usage.starts
        limits = (self._slots, self._of_worker, self._per_key, self._starts)
        self._is_free = not self.paused and limits == (None, None, None, None)
        """Whether there is no limit at all: nearly always, and asked several times for every run."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be taken at all, not even a run that has a slot."""
        if self._is_free:
            return False
        return self.paused or _is_used_up(self._of_worker) or _is_used_up(self._starts)

    @property
    def late(self) -> bool:
        """Whether it is the rate that keeps the queue closed: it opens again by itself."""
        return not self.paused and _is_used_up(self._starts)

    @property
    def full(self) -> bool:
        """Whether only runs that have a slot can be taken."""
        return not self._is_free and (self.closed or _is_used_up(self._slots))

    def admits(self, key: str | None, *, holds: bool = False) -> bool:
        """Whether a run can be taken; ``holds``: it has a slot already."""
        if self._is_free:
            return True
        if self.closed:
            return False
        if holds:
            return True
        if key is not None and self._per_key is not None and self._of_key.get(key, 0) >= self._per_key:
            return False
        return not _is_used_up(self._slots)

    def take(self, key: str | None, *, holds: bool = False) -> None:
        """Count a run that is taken."""
        if self._is_free:
            return
        if self._starts is not None:
            self._starts -= 1
        if self._of_worker is not None:
            self._of_worker -= 1
        if holds:
            return
        if self._slots is not None:
            self._slots -= 1
        if key is not None:
            self._of_key[key] = self._of_key.get(key, 0) + 1


def _is_used_up(left: int | None) -> bool:
    return left is not None and left <= 0


def place_of(row: QueueRow | None, priority: int, rank: int) -> tuple[int, int]:
    """Return the place of a run among those of its queue; the lowest comes first.

    Args:
        row: the queue's settings.
        priority: the run's.
        rank: since when it is due, or since when it is its key's turn.
    """
    if row is None or row.ageing_us is None:
        return -priority, rank
    return rank - priority * row.ageing_us, -priority


def rate_bucket(row: QueueRow, at: int) -> int:
    """Return under which time a claim at ``at`` is counted: not before it, and not much after it."""
    width = max((row.rate_us or 0) // MOST_RATE_BUCKETS, 1)
    return at - at % width + width - 1
