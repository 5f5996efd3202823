"""What a claim costs, whatever waits; and whether many workers at one queue get in each other's way.

Claims go to the store as a worker sends them, without the runs being executed: so that is measured and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import uuid4

from perdure.bench.figure import Figure
from perdure.bench.measure import check
from perdure.model.claim import Claimant, ClaimRequest, decide
from perdure.model.code import code_of
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.run import RunRow, WorkerRow
from perdure.model.status import EventType, Status
from perdure.model.write import COMMITTED, Create
from perdure.runtime.ids import CommitIds
from perdure.store.base import StoreOptions, open_store

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from perdure.bench.site import Site
    from perdure.bench.workload import Load

BATCH = 10
"""Runs in one claim."""
CLAIMS = 20
"""Claims of one sample."""
CROWD = 8
"""Workers at one queue."""
PATIENCE_S = 60
WORKFLOW, QUEUE = "nothing", "default"
_START: Barrier | None = None
"""In a process of the crowd: what its members begin at."""


def _claim(url: str, claims: int, start: Barrier | None = None) -> list[float]:
    """Claim as a worker of its own, and return the seconds that each claim took."""
    with closing(open_store(url, StoreOptions())) as store:
        store.open()
        name, now, ids = uuid4().hex, store.now(), CommitIds()
        store.register(WorkerRow(name, name, "bench", 1, "live", now, now, now + 3_600_000_000, "[]", "[]"))
        who = Claimant(name, f"{sys.version_info.major}.{sys.version_info.minor}", 3)
        request = ClaimRequest(name, (QUEUE,), (code_of(WORKFLOW),), BATCH)
        if start is not None:
            start.wait(PATIENCE_S)
        times = []
        for _ in range(claims):
            began = perf_counter()
            found = store.claim(request, lambda row, recent, now: decide(row, recent, who, now, ids.take()))
            times.append(perf_counter() - began)
            check(0 if found is None else len(found.taken), BATCH, "claims")
        return times


def _claim_with_others(url: str, claims: int) -> tuple[float, float]:
    """Claim beside others, and return when that began and ended, by the one clock of the machine."""
    times = _claim(url, claims, _START)
    ended = perf_counter()
    return ended - sum(times), ended


def _join(start: Barrier) -> None:
    global _START  # noqa: PLW0603 - a barrier can be handed over only as a process begins
    _START = start


def _lengths(longest: int) -> Iterator[int]:
    """Return how many runs wait, point by point: 1,000 and ten times as many each time."""
    queued = min(1_000, longest)
    while queued < longest:
        yield queued
        queued *= 10
    yield longest


class Backlog:
    """Runs that wait, recorded as a start records them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.waiting: int = 0
        self._store = open_store(url, StoreOptions())
        self._store.open()
        self._ids = CommitIds()

    def fill(self, queued: int) -> None:
        """Make it as long as this, if it is shorter."""
        while self.waiting < queued:
            count = min(1_000, queued - self.waiting)
            answers = self._store.commit([self._start() for _ in range(count)]) or []
            check(answers.count(COMMITTED), count, "starts")
            self.waiting += count

    def _start(self) -> Create:
        run, now, pending = uuid4().hex, self._store.now(), Status.PENDING.value
        row = RunRow(
            id=run, workflow=WORKFLOW, workflow_version="", status=pending, queue=QUEUE, priority=0, wake_at=now,
            owner=None, epoch=0, inbox_n=0, deadline_at=None, input_digest=0, tags=None, detail=None, created_at=now,
            updated_at=now,
        )  # fmt: skip
        started = Draft(EventType.RUN_STARTED.value, now, state=f">{pending}", input=b"[]")
        return Create(row, seal(run, EMPTY_TAIL, (started,), 0, self._ids.take()), fresh=True)

    def claim_time(self) -> float:
        """Return the median of the microseconds that a claim takes."""
        times = _claim(self.url, CLAIMS)
        self.waiting -= CLAIMS * BATCH
        return median(times) * 1e6

    def rate(self, workers: int) -> float:
        """Return the runs a second that workers claim together, each in a process of its own."""
        claims = CROWD * CLAIMS // workers
        context = get_context("spawn")
        start = context.Barrier(workers)
        with ProcessPoolExecutor(workers, context, _join, (start,)) as pool:
            asked = [pool.submit(_claim_with_others, self.url, claims) for _ in range(workers)]
            spans = [span.result() for span in asked]
        self.waiting -= workers * claims * BATCH
        return workers * claims * BATCH / (max(ended for _, ended in spans) - min(began for began, _ in spans))

    def close(self) -> None:
        """Let the database go."""
        self._store.close()


async def claims(site: Site, load: Load) -> list[Figure]:
    """Measure claims beside a backlog that grows; then by one worker, and by many at once."""
    with closing(Backlog(site.url("claims"))) as backlog:
        costs: dict[int, list[float]] = {}
        for queued in _lengths(load.queued):
            costs[queued] = []
            for _ in range(load.rounds):
                backlog.fill(queued)
                costs[queued].append(backlog.claim_time())
        rates: dict[int, list[float]] = {1: [], CROWD: []}
        for _ in range(load.rounds):
            for workers, found in rates.items():
                backlog.fill(CROWD * CLAIMS * BATCH)
                found.append(backlog.rate(workers))
    medians = [median(samples) for samples in costs.values()]
    alone, together = median(rates[1]), median(rates[CROWD])
    return [
        *(
            Figure(name=f"claim of {BATCH}, {queued:,} queued", value=median(samples), unit="us", samples=samples,
                   better="lower")
            for queued, samples in costs.items()
        ),
        Figure(name="claim, longest to shortest", value=medians[-1] / medians[0], unit="x", floor=2, better="lower"),
        Figure(name="runs claimed by 1 worker", value=alone, unit="/s", samples=rates[1]),
        Figure(name=f"runs claimed by {CROWD} workers", value=together, unit="/s", samples=rates[CROWD]),
        Figure(name=f"{CROWD} workers to 1", value=together / alone, unit="x", floor=0.8),
    ]  # fmt: skip
