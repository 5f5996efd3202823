"""Which failure ended a body, and what the body did because of it.

An operator's retry voids the terminal event and the failure whose delivery made the body raise. What the body asked
for after that failure, in the same branch (clean-up steps), belongs to the path the failure opened: it is voided too,
else the retried run would meet records of a path it no longer takes.
"""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """The failure a body ended with."""

    seq: int
    """Event of the failed operation."""
    op: str
    followed_by: tuple[str, ...]
    """Operations the same branch asked for after the failure was delivered."""


class FailureTrail:
    """Remembers, from the first failure on, what was asked for when."""

    __slots__ = ("_born", "deliveries", "watching")

    def __init__(self) -> None:
        self.watching = False
        self.deliveries = 0
        self._born: list[tuple[int, str]] = []

    def born(self, op_id: str) -> None:
        """Note that an operation was asked for."""
        self._born.append((self.deliveries, op_id))

    def sign(self, error: BaseException, seq: int, op_id: str) -> None:
        """Mark ``error`` as the one that event ``seq`` delivered."""
        error.__perdure_failure__ = (seq, op_id, self.deliveries)  # type: ignore[attr-defined]

    def cause(self, error: BaseException) -> Cause | None:
        """Return the failure that ``error`` is, or None when the body itself raised it."""
        signed: tuple[int, str, int] | None = getattr(error, "__perdure_failure__", None)
        if signed is None:
            return None
        seq, op_id, delivery = signed
        branch = op_id.rpartition(".")[0]
        followed = tuple(
            later for born, later in self._born if born >= delivery and _related(later.rpartition(".")[0], branch)
        )
        return Cause(seq, op_id, followed)


def _related(task: str, branch: str) -> bool:
    """Whether one of two task paths lies on the other's way to the root."""
    if not task or not branch:
        return True
    return task == branch or task.startswith(f"{branch}.") or branch.startswith(f"{task}.")
