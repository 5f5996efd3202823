"""The figure that needs several processes: the same work done by one worker and by two, beside each other.

Started as ``python -m perdure.bench.workers URL CONCURRENCY`` it is one of these workers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from perdure.api.engine import Engine
from perdure.api.many import Start
from perdure.bench.figure import Figure
from perdure.bench.measure import WARM_UP, Place, check
from perdure.bench.process import end_with_parent, settle
from perdure.bench.workload import WORKFLOWS, some_steps
from perdure.store.base import backend_of

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "default"
_READY = b"ready\n"
_LOOK_S = 0.05


async def workers(place: Place) -> list[Figure]:
    """Measure how fast one worker process, and then two, do what waits in a queue."""
    rates: dict[int, list[float]] = {1: [], 2: []}

    async def take() -> None:
        for count, found in rates.items():
            found.append(await _rate(place, count))

    await place.rounds(take)
    one, two = median(rates[1]), median(rates[2])
    # A file has one writer at a time, whoever it is; a second worker there is for fail-over.
    floor = None if backend_of(place.site.url("any")) == "sqlite" else 1.0
    return [
        Figure(name="steps, one worker", value=one, unit="/s", samples=rates[1]),
        Figure(name="steps, two workers", value=two, unit="/s", samples=rates[2]),
        Figure(name="two workers, to one", value=two / one, unit="x", floor=floor),
    ]


async def _rate(place: Place, count: int) -> float:
    """Fill a paused queue, let the workers have it, and return the steps a second until all of it is done."""
    load = place.load
    total = load.runs * load.steps
    async with place.fresh(worker=False) as client:
        with _serving(place.site.url(place.database), load.concurrency, count):
            first = await client.start_many(Start(some_steps, 1) for _ in range(WARM_UP))
            await asyncio.gather(*(run.result() for run in first))
            queue = client.queue(QUEUE)
            await queue.pause()
            await client.start_many(Start(some_steps, load.steps) for _ in range(load.runs))
            await queue.resume()
            while await _is_open(client):  # noqa: ASYNC110 - the database is asked, nothing here knows
                await asyncio.sleep(_LOOK_S)
        # By the clock of the database, as it is recorded: what looking costs, and how late it looks, is not in it.
        began = (await queue.info()).changes[0].at
        ended = max([run.updated_at async for run in client.list(status="completed", limit=load.runs)])
    check(place.site.count(place.database, "step_completed"), total + WARM_UP, "steps")
    return total / (ended - began).total_seconds()


async def _is_open(client: Engine) -> bool:
    for status in ("pending", "running"):  # in the order in which a run passes through them
        async for _ in client.list(status=status, limit=1):
            return True
    return False


@contextmanager
def _serving(url: str, concurrency: int, count: int) -> Iterator[None]:
    """Have so many worker processes while the block runs."""
    argv = [sys.executable, "-m", "perdure.bench.workers", url, str(concurrency)]
    found: list[subprocess.Popen[bytes]] = []
    try:
        while len(found) < count:
            found.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))  # noqa: S603
        for process in found:
            if process.stdout is None or process.stdout.readline() != _READY:
                message = "a worker process did not start"
                raise RuntimeError(message)
        yield
    finally:
        for process in found:
            process.kill()
            process.communicate()


async def _serve(url: str, concurrency: int) -> None:
    settle()
    async with Engine(url, WORKFLOWS, concurrency=concurrency):
        sys.stdout.buffer.write(_READY)
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
