"""Programs that are replayed from every crash point: one for each thing asyncio offers to a body.

``SETTLED`` holds those whose result does not depend on who wins a race, ``RACES`` the others.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import perdure
from tests.kernel.outside import note
from tests.kernel.steps import Declined, add, ahead, fail, flaky, names, once, peek, plus

SETTLED: dict[str, perdure.Workflow[..., Any]] = {}
RACES: dict[str, perdure.Workflow[..., Any]] = {}


def settled(function: Any) -> perdure.Workflow[..., Any]:
    return SETTLED.setdefault(function.__name__, perdure.workflow(function))


def race(function: Any) -> perdure.Workflow[..., Any]:
    return RACES.setdefault(function.__name__, perdure.workflow(function))


async def chain(start: int, length: int) -> int:
    for _ in range(length):
        start = await add(start, 1)
        note("chain", start)
    return start


@settled
async def sequence() -> int:
    total = await add(1, 2)
    total = await plus.aio(total, 4)
    assert (await names()) == ["a", "b"]
    return await chain(total, 3)


@settled
async def gathered() -> list[Any]:
    results = await asyncio.gather(
        chain(0, 3), chain(10, 2), fail("gone"), asyncio.sleep(1, "slept"), return_exceptions=True
    )
    return [str(item) for item in results]


@settled
async def task_groups() -> list[int]:
    async def inner(base: int) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(chain(base + n, 1)) for n in range(2)]
        return sum(task.result() for task in tasks)

    async with asyncio.TaskGroup() as group:
        outer = [group.create_task(inner(10 * n)) for n in range(3)]
    return [task.result() for task in outer]


@race
async def first_completed() -> list[Any]:
    tasks = {asyncio.create_task(chain(n, 2)) for n in range(6)}
    seen: list[Any] = []
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        seen.extend([await add(task.result(), 0) for task in done])
        note("seen", list(seen), [task.get_name() for task in tasks])
    return seen


@settled
async def all_done_at_once() -> list[int]:
    done, _ = await asyncio.wait({asyncio.create_task(chain(n, 1)) for n in range(12)})
    order = [task.result() for task in done]
    note("order", order)
    for number in order:
        await add(number, 0)
    return order


@settled
async def group_abort() -> list[str]:
    stopped: list[str] = []

    async def worker(n: int) -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            stopped.append(f"worker {n}")
            await add(n, 0)
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(9):
                group.create_task(worker(n))
            await fail("abort")
    except* Declined as errors:
        stopped.append(str(errors.exceptions))
    note(list(stopped))
    return stopped


@race
async def completed_coroutines() -> list[int]:
    seen = []
    for future in asyncio.as_completed([chain(n, 1) for n in range(8)]):
        seen.append(await future)
        note("seen", seen[-1])
        await ahead(seen[-1])
    return seen


@settled
async def forgotten() -> int:
    async def behind(n: int) -> None:
        await add(n, n)
        note("behind", n)

    for n in range(4):
        asyncio.create_task(behind(n))  # noqa: RUF006 - nobody keeps it, that is the point
    await asyncio.sleep(30)
    return await chain(0, 2)


@settled
async def abandoned_generators() -> int:
    async def numbers(base: int) -> AsyncIterator[int]:
        try:
            for n in range(5):
                yield await add(base, n)
        finally:
            note("closing", base)
            await add(base, 100)

    total = 0
    for base in (1, 2, 3):
        async for number in numbers(base):
            total += number
            if number > base:
                break
    return total


@race
async def queue_of_work() -> list[int]:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
    done: list[int] = []

    async def consume() -> None:
        while True:
            done.append(await add(await queue.get(), 100))
            queue.task_done()

    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    for n in range(7):
        await queue.put(n)
    await queue.join()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    return sorted(done)


@settled
async def events_and_locks() -> list[Any]:
    ready, lock, two = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(2)
    inside: list[int] = []

    async def worker(n: int) -> int:
        await ready.wait()
        async with two, lock:
            inside.append(n)
            value = await add(n, 1)
            assert inside.pop() == n
            return value

    tasks = [asyncio.create_task(worker(n)) for n in range(5)]
    await asyncio.sleep(0)
    await add(0, 0)
    ready.set()
    return list(await asyncio.gather(*tasks))


@settled
async def conditions_and_barriers() -> int:
    condition, barrier = asyncio.Condition(), asyncio.Barrier(3)
    total = 0

    async def worker(n: int) -> None:
        nonlocal total
        value = await add(n, 0)
        place = await barrier.wait()
        note("place", place, n)
        async with condition:
            total += value
            condition.notify_all()

    async with asyncio.TaskGroup() as group:
        for n in (1, 2, 3):
            group.create_task(worker(n))
        async with condition:
            await condition.wait_for(lambda: total == 6)
    return await add(total, 1)


@settled
async def shielded() -> list[Any]:
    inner = asyncio.ensure_future(chain(5, 2))
    seen: list[Any] = []
    try:
        async with asyncio.timeout(0.5):
            await asyncio.shield(asyncio.sleep(2, "inner"))
    except TimeoutError:
        seen.append("late")
    seen.append(await asyncio.shield(inner))
    return seen


@race
async def timeouts() -> list[Any]:
    seen: list[Any] = []
    loop = asyncio.get_running_loop()
    for limit in (0.5, 2, 30):
        try:
            async with asyncio.timeout(limit):
                seen.append(await chain(0, 2))
        except TimeoutError:
            seen.append("timeout")
        try:
            async with asyncio.timeout_at(loop.time() + limit) as scope:
                seen.append(await add(1, 1))
                scope.reschedule(loop.time() + 100)
                seen.append(await add(2, 2))
        except TimeoutError:
            seen.append("timeout at")
        try:
            seen.append(await asyncio.wait_for(add(3, 3), limit))
        except TimeoutError:
            seen.append("wait_for")
        note(*seen)
    return seen


@settled
async def cancellation() -> list[str]:
    seen: list[str] = []

    async def stubborn() -> str:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            seen.append(f"swallowed {await add(1, 1)}")
        return "went on"

    async def tidy() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            seen.append(f"tidied {await add(2, 2)}")

    async def never() -> None:
        seen.append("never")
        await add(9, 9)

    first, second, third = (asyncio.create_task(work()) for work in (stubborn, tidy, never))
    third.cancel()
    await add(0, 0)
    first.cancel()
    second.cancel()
    await asyncio.sleep(0)
    second.cancel()  # in the middle of its clean-up
    results = await asyncio.gather(first, second, third, return_exceptions=True)
    return [*sorted(seen), *(repr(item) for item in results)]


COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@settled
async def context_variables() -> list[str]:
    async def child(name: str) -> str:
        before = COLOUR.get()
        COLOUR.set(name)
        await add(1, 1)
        return f"{before} {COLOUR.get()}"

    COLOUR.set("root")
    results = await asyncio.gather(child("red"), child("blue"))
    task = asyncio.create_task(child("green"), context=contextvars.Context())
    return [*results, await task, COLOUR.get()]


@settled
async def call_later() -> list[Any]:
    loop = asyncio.get_running_loop()
    seen: list[Any] = []
    future = loop.create_future()
    loop.call_later(5, seen.append, "later")
    gone = loop.call_later(6, seen.append, "cancelled")
    loop.call_at(loop.time() + 7, future.set_result, "at")
    loop.call_soon(seen.append, "soon")
    gone.cancel()
    started = loop.time()
    seen.append(await future)
    assert loop.time() - started >= 7
    assert gone.cancelled()
    return seen


@settled
async def logical_values() -> list[Any]:
    first = perdure.now()
    dice = [perdure.random() for _ in range(3)]
    await add(1, 1)
    later = perdure.now()
    assert later >= first
    note(str(first), dice, str(perdure.uuid4()), asyncio.get_running_loop().time())
    await add(len(dice), 1)
    note(str(perdure.now()))
    return [dice, str(perdure.uuid4())]


@settled
async def markers() -> int:
    perdure.publish("progress", 0)
    await perdure.checkpoint("started", {"by": "test"})

    async def branch(n: int) -> int:
        value = await add(n, 1)
        perdure.publish("progress", value)
        await perdure.publish(f"branch {n}", value)
        perdure.checkpoint(f"done {n}")
        return value

    return sum(await asyncio.gather(branch(1), branch(2)))


@settled
async def mixed_durability() -> int:
    async def branch(n: int) -> int:
        total = 0
        for k in range(3):
            total += await ahead(n + k)
            total += await peek(total)
            note(n, k, total)
        return await add(total, n)

    return sum(await asyncio.gather(branch(1), branch(2), peek(3), chain(0, 3)))


@settled
async def retried() -> list[int]:
    return list(await asyncio.gather(flaky(1), flaky(2), add(1, 1)))


@race
async def at_most_once() -> list[Any]:
    seen: list[Any] = []
    for n in (1, 2):
        try:
            seen.append(await once(n))
        except perdure.StepInterrupted:
            seen.append("interrupted")
        seen.append(await add(n, 0))
    return seen


@settled
async def gathers_in_a_set() -> list[Any]:
    """The future that ``gather`` returns is of a class of its own."""
    groups = [asyncio.gather(add(n, 0), add(n, 1)) for n in range(7)]
    done, _ = await asyncio.wait(groups)
    order = [group.result()[0] for group in done]
    for number in order:
        await add(number, 5)
    return order


@settled
async def every_task() -> list[str]:
    tasks = [asyncio.create_task(chain(n, 1), name=f"branch {n}") for n in range(9)]
    order = [task.get_name() for task in asyncio.all_tasks() if task in tasks]
    for name in order:
        await add(len(name), 0)
    await asyncio.gather(*tasks)
    return order


EVERY = SETTLED | RACES
