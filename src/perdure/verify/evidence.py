"""What is checked, as plain rows: one run with everything that belongs to it, and what belongs to no run."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


class Evidence(Protocol):
    """Where the rows come from."""

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
