"""What is checked, as plain rows: one run with everything that belongs to it, and what belongs to no run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Fact(NamedTuple):
    """A row of the log, column by column."""

    seq: int
    type: str
    op: str | None
    kind: str | None
    name: str | None
    attempt: int
    at: int
    epoch: int
    commit_id: int
    state: str | None
    digest: int | None
    detail: bytes | None
    input: bytes | None
    payload: bytes | None
    chain: bytes


class Standing(NamedTuple):
    """The row of a run: what is derived from its log."""

    id: str
    status: str
    wake_at: int | None
    owner: str | None
    epoch: int
    inbox_n: int
    tags: str | None
    created_at: int
    updated_at: int
    queue: str
    workflow: str
    priority: int
    partition_key: str | None
    version_id: int


class Grave(NamedTuple):
    """What a purged run left behind."""

    run_id: str
    status: str


@dataclass(slots=True)
class Case:
    """One run with its whole log."""

    row: Standing
    facts: list[Fact]
    inbox: list[int] = field(default_factory=list)
    """Numbers of the messages that wait."""
    tags: set[tuple[str, str]] = field(default_factory=set)
    """What the tag table says."""


class QueueFacts(NamedTuple):
    """The settings of a queue, and the record of their changes."""

    name: str
    settings: dict[str, int | None]
    changed_at: int
    number: int
    """How many changes there were."""
    changes: list[tuple[int, int, str]]
    """(number, time, JSON object of setting to [before, after]), in order."""

    def limit(self, name: str) -> int | None:
        """Return a setting."""
        return self.settings[name]

    @property
    def is_limited(self) -> bool:
        """Whether its runs take slots."""
        return any(self.settings[name] is not None for name in LIMITS)


LIMITS = ("concurrency", "concurrency_per_worker", "concurrency_per_key")
SETTINGS = (
    "concurrency", "concurrency_per_worker", "concurrency_per_key", "rate_limit", "rate_us", "ageing_us", "fair",
    "hold_while_waiting", "paused",
)  # fmt: skip
QUEUES = """
    select name, changed_at, changes, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us,
        ageing_us, fair, hold_while_waiting, paused
    from queue where changes > 0
"""
CHANGES = "select queue, n, at, {} from queue_change order by queue, n"
SLOTS = "select run_id, epoch from slot"
LANES = "select queue, code, priority, partition_key from lane"


def queue_facts(queues: Iterable[Sequence[Any]], changes: Iterable[Sequence[Any]]) -> Iterator[QueueFacts]:
    """Put rows of `QUEUES` and `CHANGES` together."""
    said: dict[str, list[tuple[int, int, str]]] = {}
    for queue, *change in changes:
        said.setdefault(queue, []).append((change[0], change[1], change[2]))
    for name, changed_at, number, *settings in queues:
        facts = dict(zip(SETTINGS, settings, strict=True))
        yield QueueFacts(name, facts, changed_at, number, said.get(name, []))


class Evidence(Protocol):
    """Where the rows come from."""

    slack_us: int
    """Microseconds by which a worker's clock may be ahead of the one that tells the time of claims."""

    def damage(self) -> Iterator[str]:
        """Yield what the database itself finds wrong with its file."""
        ...

    def cases(self) -> Iterator[Case]:
        """Yield every run. Only one is in memory at a time."""
        ...

    def graves(self) -> Iterator[Grave]:
        """Yield every tombstone."""
        ...

    def strays(self) -> Iterator[tuple[str, str]]:
        """Yield table and key of rows that belong to no run."""
        ...

    def queues(self) -> Iterator[QueueFacts]:
        """Yield the queues that have settings."""
        ...

    def slots(self) -> Iterator[tuple[str, int]]:
        """Yield run id and epoch of every slot."""
        ...

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement without values, which means the same everywhere. One at a time."""
        ...

    def lanes(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield queue, workflow, priority and key of every line of runs with a partition key."""
        ...


class Finding(NamedTuple):
    """One thing that is not as it must be."""

    rule: str
    run_id: str | None
    seq: int | None
    text: str

    def __str__(self) -> str:
        where = "" if self.run_id is None else f"run {self.run_id}" + ("" if self.seq is None else f" event {self.seq}")
        return f"{self.rule}: {where}{': ' if where else ''}{self.text}"


class Unreadable(Exception):
    """A value that is not what its column holds."""


def facts_in(detail: bytes | str | None) -> dict[str, Any]:
    """Return an event's detail.

    Raises:
        Unreadable: it is no JSON object.
    """
    if detail is None:
        return {}
    try:
        found = json.loads(detail)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if not isinstance(found, dict):
        raise Unreadable("not a JSON object")
    return found


def detail_of(fact: Fact) -> dict[str, Any]:
    """Return an event's detail; nothing where it cannot be read, which a rule of its own reports."""
    try:
        return facts_in(fact.detail)
    except Unreadable:
        return {}
