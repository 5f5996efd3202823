"""Where the processor time of a step goes, by layer: a sampler on the process's own CPU clock.

A tracing profiler would tell more about itself than about the engine. This one looks at the stack each time the
process has used another bit of processor time, and counts the innermost frame that says whose time it is.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Self

from perdure.bench.figure import Figure

EVERY_S = 0.001
TOP = 12
_ROOT = Path(__file__).resolve().parents[1]


class Profile:
    """Samples while its block runs; may be entered many times."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._layers: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if self._enabled:
            signal.signal(signal.SIGPROF, self._look)
            signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _look(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        if frame is not None:
            self._layers[layer(frame.f_code.co_filename)] += 1
            name = f"{short(frame.f_code.co_filename)}:{frame.f_code.co_name}"
            self._functions[name] += 1

    def figures(self, cost_us: float) -> list[Figure]:
        """Return the shares as microseconds per step, largest first: layers, then functions."""
        total = self._layers.total()
        parts = [("layer", self._layers.most_common()), ("function", self._functions.most_common(TOP))]
        return [
            Figure(name=f"{title} {name}", value=cost_us * count / total, unit="us")
            for title, counts in parts
            for name, count in counts
        ]


def layer(filename: str) -> str:
    """Return whose code a file is: a package of Perdure, or Python's library."""
    path = Path(filename)
    if path.is_relative_to(_ROOT):
        return f"perdure.{path.relative_to(_ROOT).parts[0].removesuffix('.py')}"
    if "asyncio" in path.parts:
        return "asyncio"
    return "other Python"


def short(filename: str) -> str:
    """Return a file name without the part that is the same for all."""
    path = Path(filename)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name
