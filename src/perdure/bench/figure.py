"""A measured figure, with what it is held against."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec


class Mark(NamedTuple):
    """What a figure is held against; see `Figure`."""

    floor: float | None = None
    goal: float | None = None


class Marks(NamedTuple):
    """What the figures of one kind of database are held against; nothing where nothing is promised."""

    steps: Mark = Mark()
    """Steps per single-row commit."""
    processor: Mark = Mark()
    """Microseconds of processor time per step."""
    sequence: Mark = Mark()
    """A step in sequence, in single-row commits."""
    latency: Mark = Mark()
    """From start to result of a one-step run, in single-row commits."""
    starts: Mark = Mark()
    """Starts per second of a client alone."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number.

    Attributes:
        name: what was measured.
        value: the median.
        unit: of the value.
        samples: what the median is of; empty where there was one value.
        floor: the value that must be reached; None for a figure that is only reported.
        goal: the value aimed at.
        better: which direction is better.
    """

    name: str
    value: float
    unit: str
    samples: list[float] = []
    floor: float | None = None
    goal: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def verdict(self) -> str:
        """``goal``, ``pass`` or ``miss``; empty for a figure that is only reported."""
        if self.floor is None:
            return ""
        if self.goal is not None and self._reaches(self.goal):
            return "goal"
        return "pass" if self._reaches(self.floor) else "miss"

    def _reaches(self, mark: float) -> bool:
        return self.value >= mark if self.better == "higher" else self.value <= mark

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**msgspec.structs.asdict(self), "verdict": self.verdict}
