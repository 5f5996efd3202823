"""All that can be set, in one frozen value that is handed down. Nothing below ``api`` reads the environment."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker behaves. Times are in microseconds.

    Attributes:
        queues: queues served.
        weights: share of the claims that each of them gets; all alike if empty.
        concurrency: runs that may be active at once in this process.
        threads: threads for sync steps.
        lease_us: how long a silent worker keeps its runs.
        grace_us: how long steps in flight may go on after a request to stop.
        poll_us: longest time until work that another process left is noticed.
        hint_us: how often the store's cheap change hint is looked at.
        evict_after_us: how long an idle run stays in memory.
        max_deaths: workers that may die of a run in a row before it is parked.
        max_bytes: largest input, result or error stored; None for no limit.
        ahead_results: unrecorded results of ``durability="ahead"`` steps a run may have.
        ahead_us: longest time such a result may be unrecorded before further steps wait.
    """

    queues: tuple[str, ...] = ("default",)
    weights: tuple[int, ...] = ()
    concurrency: int = 100
    threads: int = 32
    lease_us: int = 10_000_000
    grace_us: int = 30_000_000
    poll_us: int = 500_000
    hint_us: int = 50_000
    evict_after_us: int = 2_000_000
    max_deaths: int = 3
    max_bytes: int | None = None
    ahead_results: int = 64
    ahead_us: int = 50_000
