"""Which failures ended a body, and what the body asked for after the first of them.

An operator's retry voids the terminal event and the failures whose delivery made the body raise. What the body asked
for after them is in doubt: a sibling branch may have gone on (its results stay), or clean-up may have run because of
the failure (its records belong to a path that the retried run no longer takes). The next replay tells which: a record
in doubt counts if the body asks for exactly that by then, and is passed over if not.
"""

from __future__ import annotations

from typing import NamedTuple

MARK = "__perdure_failure__"
"""Attribute of a delivered error. Names that begin like this are never stored with an exception."""


class Cause(NamedTuple):
    """The failures a body ended with."""

    seqs: tuple[int, ...]
    """Events of the failed operations, oldest first."""
    op: str
    """Operation of the oldest."""
    followed_by: tuple[str, ...]
    """Operations the body asked for after the oldest failure was delivered."""


class FailureTrail:
    """Remembers, from the first failure on, what was asked for when."""

    __slots__ = ("_born", "deliveries", "watching")

    def __init__(self) -> None:
        self.watching: bool = False
        self.deliveries: int = 0
        self._born: list[tuple[int, str]] = []

    def born(self, op_id: str) -> None:
        """Note that an operation was asked for."""
        self._born.append((self.deliveries, op_id))

    def sign(self, error: BaseException, seq: int, op_id: str) -> None:
        """Mark ``error`` as the one that event ``seq`` delivered."""
        # Not setattr(): the class may refuse new attributes.
        BaseException.__setattr__(error, MARK, (seq, op_id, self.deliveries))

    def cause(self, error: BaseException) -> Cause | None:
        """Return the failures behind ``error``, or None when the body itself raised it."""
        signed = sorted(set(_signatures(error, set())))
        if not signed:
            return None
        _, op_id, delivery = signed[0]
        followed = tuple(later for born, later in self._born if born >= delivery)
        return Cause(tuple(seq for seq, _, _ in signed), op_id, followed)


def _signatures(error: BaseException, seen: set[int]) -> list[tuple[int, str, int]]:
    """Return the nearest signatures: the error's own, else its group's, else those of what it was raised from."""
    if id(error) in seen:
        return []
    seen.add(id(error))
    own: tuple[int, str, int] | None = getattr(error, MARK, None)
    if own is not None:
        return [own]
    if isinstance(error, BaseExceptionGroup):
        found = [mark for member in error.exceptions for mark in _signatures(member, seen)]
        if found:
            return found
    before = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    return _signatures(before, seen) if before is not None else []
