"""Real complaints about limits, rates, keys and order of queues, on every backend."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import perdure
from perdure import Queue, Rate, Start
from perdure.model.claim import ClaimRequest, Claims
from perdure.testing.author import claims_for
from perdure.verify.database import verify

NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(600)]
began: list[tuple[str, float]] = []
ended: list[tuple[str, float]] = []
gates: dict[str, asyncio.Event] = {}
created: dict[str, float] = {}


@perdure.step
async def stay(name: str, seconds: float) -> None:
    began.append((name, time.monotonic()))
    if name in gates:
        await gates[name].wait()
    else:
        await asyncio.sleep(seconds)
    ended.append((name, time.monotonic()))


@perdure.workflow
async def job(name: str, seconds: float = 0.0) -> str:
    await stay(name, seconds)
    return name


@perdure.workflow
async def visit(name: str) -> None:
    """Open, wait, close."""
    await stay(f"{name} opens", 0.01)
    await asyncio.sleep(0.6)
    await stay(f"{name} closes", 0.01)


@pytest.fixture(autouse=True)
def fresh() -> None:
    began.clear()
    ended.clear()
    gates.clear()
    created.clear()


def engine(url: str, queues: Sequence[Any] | dict[str, int], **options: Any) -> perdure.Engine:
    chosen = {"lease": "2s", "poll": "0.2s", "hint": "20ms", "grace": "1s", **options}
    return perdure.Engine(url, [job, visit], queues=queues, **chosen)


async def fill(url: str, queue: Queue, *starts: Start) -> None:
    """Declare a queue and put runs on it, with nobody to execute them."""
    async with engine(url, [queue], worker=False) as client:
        await client.start_many(starts)


async def all_ended(client: perdure.Engine, runs: int, timeout: float = 15.0) -> None:
    deadline = time.monotonic() + timeout
    while len(ended) < runs:
        assert time.monotonic() < deadline, (len(began), len(ended))
        await asyncio.sleep(0.02)
    async for info in client.list(limit=runs):
        await client.get(info.id).result(timeout=timeout)


def most_at_once() -> int:
    """Return how many steps were in progress at once."""
    changes = sorted([(at, 1) for _, at in began] + [(at, -1) for _, at in ended])
    most = here = 0
    for _, change in changes:
        here += change
        most = max(most, here)
    return most


async def nothing_is_left(client: perdure.Engine, url: str, queue: str) -> None:
    assert (await client.queue(queue).info()).slots == 0
    assert verify(url).findings == []


async def test_case_que_02(url: str) -> None:
    """Priority ignored within a serial key: insertion order beats priority once a lock is involved.

    Source: procrastinate-org/procrastinate#1410.
    """
    queue = Queue("q", concurrency_per_key=1)
    wanted = {"low": 0, "high": 10, "mid": 5}
    starts = [Start(job, name, queue="q", priority=at, partition_key="k") for name, at in wanted.items()]
    await fill(url, queue, *starts)
    async with engine(url, [queue]) as worker:
        await all_ended(worker, 3)
        assert [name for name, _ in began] == ["high", "mid", "low"]
        assert most_at_once() == 1
        await nothing_is_left(worker, url, "q")


async def busy(client: perdure.Engine, until: Callable[[], bool], *, queue: str = "q", priority: int = 10) -> None:
    """Keep five jobs of a high priority waiting."""
    number = 0
    while not until():
        while number - sum(name.startswith(queue) for name, _ in ended) < 6:
            name = f"{queue}-{number}"
            created[name] = time.monotonic()
            await client.start(job, name, 0.02, queue=queue, priority=priority)
            number += 1
        await asyncio.sleep(0.01)


async def test_case_que_04(url: str) -> None:
    """Low priority never gets a turn: with ageing it starts within its bound.

    Only what came less than ten levels of 100 ms after it starts before it.
    Source: timescale/timescaledb#9918, mergestat/mergestat#318.
    """
    queue = Queue("q", concurrency=1, ageing="100ms")
    async with engine(url, [queue]) as worker:
        background = busy(worker, lambda: any(name == "low" for name, _ in began))
        stream = asyncio.create_task(background)
        await asyncio.sleep(0.3)
        before = time.monotonic()
        await worker.start(job, "low", queue="q", priority=0)
        after = time.monotonic()
        await asyncio.wait_for(stream, 40)
        order = [name for name, _ in began]
        overtook = [created[name] for name in order[: order.index("low")]]
        assert max(overtook) < after + 1.0 + 0.5
        assert any(at > before for at in overtook)


async def test_case_que_04_strict(url: str) -> None:
    """Without ageing priorities are strict, and the age of what waits can be seen."""
    async with engine(url, [Queue("q", concurrency=1)]) as worker:
        over = time.monotonic() + 1.5
        stream = asyncio.create_task(busy(worker, lambda: time.monotonic() > over))
        await asyncio.sleep(0.3)
        await worker.start(job, "low", queue="q", priority=0)
        await asyncio.sleep(0.8)
        assert not [name for name, _ in began if name == "low"]
        oldest = (await worker.queue("q").info()).oldest_due_at
        assert oldest is not None
        assert time.time() - oldest.timestamp() > 0.7
        await stream


async def test_case_que_04_two_queues(url: str) -> None:
    """Two queues of one weight each get their part of the starts, though one has the higher priorities."""

    def enough() -> bool:
        return len(began) >= 30

    async with engine(url, ["a", "b"], concurrency=1) as worker:
        await asyncio.gather(busy(worker, enough, queue="a"), busy(worker, enough, queue="b", priority=0))
        starts = Counter(name[0] for name, _ in began[:30])
        assert min(starts["a"], starts["b"]) >= 9


async def test_queues_share_an_engine_by_unequal_weights(url: str) -> None:
    """While all of them have runs, each queue has its weight's part of the starts so far to within two, at every start.

    The lowest weight has the highest priorities: they count within a queue.
    """
    weights = {"a": 3, "b": 1, "c": 2}
    for queue, weight in weights.items():
        starts = (Start(job, f"{queue}-{n}", queue=queue, priority=9 - 3 * weight) for n in range(5 * weight + 3))
        await fill(url, Queue(queue), *starts)
    async with engine(url, weights, concurrency=1) as worker:
        await all_ended(worker, 5 * sum(weights.values()) + 3 * len(weights))
    for count in range(1, 5 * sum(weights.values()) + 1):
        so_far = Counter(name[0] for name, _ in began[:count])
        for queue, weight in weights.items():
            assert abs(so_far[queue] - count * weight / sum(weights.values())) <= 2, (count, so_far)


@pytest.mark.parametrize("backlog,within", [(3000, 10.0), pytest.param(20_000, 3.0, marks=NIGHTLY)])
async def test_case_que_05(url: str, backlog: int, within: float) -> None:
    """A busy queue keeps an idle one from being claimed: with one huge backlog, others wait for minutes.

    Source: dbos-inc/dbos-transact-ts#1302.
    """
    big = Queue("big", concurrency_per_key=2, fair=True)
    small = Queue("small", concurrency=5)
    await fill(url, big, *(Start(job, f"big-{n}", queue="big", partition_key=f"k{n % 6}") for n in range(backlog)))
    async with engine(url, [big, small], concurrency=20) as worker:
        while len(began) < 20:
            await asyncio.sleep(0.01)
        since = time.monotonic()
        await worker.start_many(Start(job, f"small-{n}", queue="small") for n in range(20))
        names: list[str] = []
        while sum(name.startswith("small") for name in names) < 20:
            assert time.monotonic() - since < within
            await asyncio.sleep(0.01)
            names = [name for name, _ in began]
        await worker.queue("big").pause()


async def test_case_que_06_per_worker(url: str) -> None:
    """A limit of each worker acts as one of all: two workers with one run each execute one at a time in total.

    Source: dbos-inc/dbos-transact-py#508.
    """
    queue = Queue("q", concurrency_per_worker=1)
    await fill(url, queue, *(Start(job, f"job-{n}", 2.0, queue="q") for n in range(2)))
    async with engine(url, [queue]) as one, engine(url, [queue]):
        await all_ended(one, 2)
        assert most_at_once() == 2
        await nothing_is_left(one, url, "q")


async def test_case_que_06_global(url: str) -> None:
    """A global limit of one holds over workers that may each have five."""
    queue = Queue("q", concurrency=1, concurrency_per_worker=5)
    await fill(url, queue, *(Start(job, f"job-{n}", 0.05, queue="q") for n in range(6)))
    async with engine(url, [queue]) as one, engine(url, [queue]):
        await all_ended(one, 6)
        assert most_at_once() == 1
        await nothing_is_left(one, url, "q")


async def test_case_que_07(url: str) -> None:
    """A refused redelivery frees a slot it never held.

    While a run has the only slot of its key, it is claimed again by somebody else, time and again, and refused; the
    others of its key wait all the same. Source: chrisguidry/docket#223, hatchet-dev/hatchet#1052.
    """
    queue = Queue("q", concurrency_per_key=1)
    gates["a"] = asyncio.Event()
    async with engine(url, [queue]) as one, engine(url, [queue]) as two:
        await one.start(job, "a", id="a", queue="q", partition_key="k")
        while not began:
            await asyncio.sleep(0.01)
        for name in "bc":
            await one.start(job, name, queue="q", partition_key="k")
        store = two.connection.store
        request = ClaimRequest(two._worker.id, ("q",), ("0 job",), 5, only="a")  # type: ignore[union-attr]
        for _ in range(5):
            await asyncio.sleep(0.05)
            assert (store.claim(request, claims_for(request.worker_id)) or Claims([])).taken == []
        assert [name for name, _ in began] == ["a"]
        gates["a"].set()
        await all_ended(one, 3)
        assert most_at_once() == 1
        await nothing_is_left(one, url, "q")


async def in_a_window(client: perdure.Engine, seconds: float, slack: float) -> int:
    """Return the most claims in any window of this length, by the log."""
    times = []
    async for info in client.list(limit=10_000):
        history = await client.get(info.id).history()
        times += [event.at.timestamp() for event in history if event.type == "run_claimed"]
    times.sort()
    return max(sum(first <= at < first + seconds - slack for at in times) for first in times)


@pytest.mark.parametrize(
    "workers,jobs,per,idle,longest", [(4, 60, 0.5, 0.0, 15.0), pytest.param(8, 200, 1.0, 10.0, 25.0, marks=NIGHTLY)]
)
async def test_case_que_09(url: str, workers: int, jobs: int, per: float, idle: float, longest: float) -> None:
    """A rate that is not shared: two workers both open the new window, and eleven start where ten may.

    The workers begin at one moment; and, in the long campaigns, there is more to do after they were idle for a while.
    Source: rafidahmed870/queue-jobs-worker#15, OptimalBits/bull#2777.
    """
    queue = Queue("q", rate=Rate(10, per=per))
    await fill(url, queue, *(Start(job, f"job-{n}", queue="q") for n in range(jobs)))
    engines = [engine(url, [queue]) for _ in range(workers)]
    since = time.monotonic()
    await asyncio.gather(*(one.open() for one in engines))
    try:
        await all_ended(engines[0], jobs, longest)
        least = (jobs / 10 - 1) * per
        assert least * 0.92 < ended[-1][1] - since < longest
        if idle:
            await asyncio.sleep(idle)
            since = time.monotonic()
            await engines[0].start_many(Start(job, f"more-{n}", queue="q") for n in range(jobs))
            await all_ended(engines[0], 2 * jobs, longest)
            assert least * 0.92 < ended[-1][1] - since < longest
        assert await in_a_window(engines[0], per, 0 if url.startswith("sqlite") else 0.01) <= 10
        assert verify(url).findings == []
    finally:
        await asyncio.gather(*(one.close() for one in engines))


@pytest.mark.parametrize("per,longest,again", [
    (0.4, 15.0, True), pytest.param(1.0, 8.0, True, marks=NIGHTLY), pytest.param(1.0, 8.0, False, marks=NIGHTLY),
])  # fmt: skip
async def test_case_que_11(url: str, *, per: float, longest: float, again: bool) -> None:
    """Jobs over the limit are dropped, or stuck after the first window; also when the worker is started again.

    Source: OptimalBits/bull#2082, taskforcesh/bullmq#269.
    """
    queue = Queue("q", rate=Rate(2, per=per))
    names = [f"job-{n}" for n in range(10)]
    await fill(url, queue, *(Start(job, name, queue="q") for name in names))
    since = time.monotonic()
    if again:
        async with engine(url, [queue]):
            while len(ended) < 4:
                await asyncio.sleep(0.01)
    async with engine(url, [queue]) as worker:
        await all_ended(worker, 10)
    assert 3.5 * per < ended[-1][1] - since < longest
    assert [name for name, _ in began] == names


@pytest.mark.parametrize("hold", [False, True])
async def test_case_que_19(url: str, *, hold: bool) -> None:
    """Does a run that waits count against the limit? The queue says so.

    Source: inngest/inngest#2263.
    """
    queue = Queue("q", concurrency=1, hold_while_waiting=hold)
    await fill(url, queue, *(Start(visit, name, queue="q") for name in ("one", "two")))
    async with engine(url, [queue], evict_after="50ms") as worker:
        await all_ended(worker, 4)
        order = [name for name, _ in began]
        if hold:
            assert order == ["one opens", "one closes", "two opens", "two closes"]
        else:
            assert order == ["one opens", "two opens", "one closes", "two closes"]
        await nothing_is_left(worker, url, "q")


async def test_a_paused_queue_starts_nothing_and_resumes_at_once(url: str) -> None:
    queue = Queue("q", concurrency=5)
    async with engine(url, [queue]) as worker, engine(url, [queue], worker=False) as client:
        await client.queue("q").pause(reason="maintenance")
        await client.start_many(Start(job, f"job-{n}", queue="q") for n in range(20))
        await asyncio.sleep(0.5)
        assert began == []
        since = time.monotonic()
        await client.queue("q").resume()
        await all_ended(worker, 20)
        assert began[0][1] - since < 5


async def test_deduplication_holds_between_clients(url: str) -> None:
    queue = Queue("q", concurrency=1)
    async with engine(url, [queue], worker=False) as one, engine(url, [queue], worker=False) as two:
        handles = await asyncio.gather(
            *(client.start(job, str(n), queue="q", deduplication_key="k") for n in range(10) for client in (one, two))
        )
        assert len({handle.id for handle in handles}) == 1
        assert sum(handle.is_new for handle in handles) == 1
