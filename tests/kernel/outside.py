"""The world outside a run: it counts the calls of every step, and decides how long each takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import perdure


class Outside:
    """What a set of executions shares: its clockwork, and the books that are compared afterwards."""

    def __init__(self, seed: int = 0, slowest_s: float = 4.0) -> None:
        self.seed = seed
        self.slowest_s = slowest_s
        self.calls: Counter[str] = Counter()
        """Operation id to number of calls."""
        self.trace: list[Any] = []
        """What the body has seen, in order."""
        self.on_call: Callable[[perdure.StepInfo], None] = lambda _info: None
        self.broken: set[str] = set()
        """What fails at present: labels given to the step `try_it`."""

    def latency(self, label: str) -> float:
        return Random(f"{self.seed}:{label}").random() * self.slowest_s

    def called(self) -> perdure.StepInfo:
        info = perdure.step_info()
        self.calls[info.key.rpartition(":")[2]] += 1
        self.on_call(info)
        return info

    async def work(self) -> perdure.StepInfo:
        info = self.called()
        await asyncio.sleep(self.latency(f"{info.key}:{info.attempt}"))
        return info


class _Place:
    outside = Outside()


def enter(outside: Outside) -> Outside:
    """Make ``outside`` the world that steps and bodies meet from now on."""
    _Place.outside = outside
    return outside


def here() -> Outside:
    return _Place.outside


def note(*seen: Any) -> None:
    """Called by a body: write down what it sees."""
    _Place.outside.trace.append(seen)
