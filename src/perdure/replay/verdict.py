"""What a check of one recorded run found."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class VerdictKind(StrEnum):
    """How recorded history and code relate."""

    SAFE = "SAFE"
    """The code asks for exactly what was recorded."""
    SAFE_ARGS_DIFFER = "SAFE_ARGS_DIFFER"
    """The same operations, but one would now be asked for with other data; its recorded result would be used."""
    DIVERGES = "DIVERGES"
    """The code asks for something else than was recorded, or ends where the run went on, or the other way round."""
    RAISES = "RAISES"
    """The code raises on recorded results, or does not come to rest."""
    STATE_INCOMPATIBLE = "STATE_INCOMPATIBLE"
    """A recorded value does not load as what the code expects."""
    SIDE_EFFECT = "SIDE_EFFECT"
    """The code tried to do something outside a step."""
    NONDETERMINISTIC = "NONDETERMINISTIC"
    """Two replays of the same history, in processes with different hash seeds, asked for different things."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of one recorded run found. ``str()`` of it is one line.

    Attributes:
        run_id: id of the run.
        workflow: name of its workflow.
        kind: how recorded history and code relate.
        at: id of the operation it was found at, such as ``3`` or ``2.1``; ``input`` for the arguments of the run,
            ``start`` before the first operation, ``end`` for the way it ended; None if nothing was found.
        expected: what was recorded there.
        found: what the code does there.
        next: where nothing is wrong: what the code asks for next, or how the run ends.
        unchecked: recorded events that were not reached, because they follow a step that is not recorded.
    """

    run_id: str
    workflow: str
    kind: VerdictKind
    at: str | None = None
    expected: str = ""
    found: str = ""
    next: str = ""
    unchecked: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether nothing was found."""
        return self.kind is VerdictKind.SAFE

    def __str__(self) -> str:
        where = "" if self.at is None else f" at {self.at}"
        line = f"{self.run_id} ({self.workflow}): {self.kind}{where}"
        parts = [f"recorded {self.expected}"] if self.expected else []
        parts += [self.found] if self.found else []
        parts += [f"next: {self.next}"] if self.next else []
        if self.unchecked:
            parts.append(f"{self.unchecked} events after it were not checked")
        return f"{line}: {'; '.join(parts)}" if parts else line


class Finding(NamedTuple):
    """A verdict, and everything the body asked for on the way to it: what two checks must agree on."""

    verdict: Verdict
    trace: list[str]
