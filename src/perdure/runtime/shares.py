"""How a worker divides what it claims among the queues it serves: by weight, over any number of claims.

Each queue has a pass that grows by 1 / weight with every run taken; the lowest pass is next (stride scheduling). So
queues that all have runs get their weights' shares, to within two runs each, and a queue that was empty saves nothing
up: it comes back at the pass of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Shares:
    """The passes of one worker's queues."""

    def __init__(self, queues: Sequence[str], weights: Sequence[int] = ()) -> None:
        self._weights = dict(zip(queues, weights or (1,) * len(queues), strict=True))
        self._passes = dict.fromkeys(queues, 0.0)

    def of(self, limit: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the queues, the next first, and how much of ``limit`` each is to have for itself."""
        if len(self._weights) == 1:
            return tuple(self._weights), ()
        passes = dict(self._passes)
        shares = dict.fromkeys(passes, 0)
        for _ in range(limit):
            name = min(passes, key=passes.__getitem__)
            shares[name] += 1
            passes[name] += 1 / self._weights[name]
        order = sorted(self._passes, key=self._passes.__getitem__)
        return tuple(order), tuple(shares[name] for name in order)

    def count(self, shares: Mapping[str, int], taken: Mapping[str, int]) -> None:
        """Count what a claim took of each queue, of the share it could have had."""
        passes = self._passes
        for name in shares:
            passes[name] += taken.get(name, 0) / self._weights[name]
        idle = [name for name, share in shares.items() if taken.get(name, 0) < share]
        level = min((passes[name] for name in passes if name not in idle), default=max(passes.values()))
        for name in idle:
            passes[name] = max(passes[name], level)
        lowest = min(passes.values())
        for name in passes:
            passes[name] -= lowest
