"""The workflows of the cases. Every step writes to the outside ledger first."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import time
from typing import Any

import perdure
from perdure import Retry, step, workflow
from tests.cases.ledger import Ledger, flag, note, worker


def ran(name: str) -> int:
    """Count how often the body of this step ran in its run so far, this time included."""
    return Ledger(flag("").with_name("ledger")).count(name, perdure.step_info().run_id)


@step
async def first() -> str:
    note()
    return "one"


@step
async def second() -> str:
    note()
    note(phase="end")
    return "two"


@step
async def third() -> str:
    note()
    return "three"


@step
async def last(value: Any = None) -> Any:
    note(value=value)
    return value


@workflow
async def two_steps() -> list[str]:
    return [await first(), await second()]


@workflow
async def three_steps() -> list[str]:
    return [await first(), await second(), await third()]


@workflow
async def nap(seconds: float) -> str:
    await first()
    await asyncio.sleep(seconds)
    await last()
    return "rested"


@workflow
async def plain_sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    await last()
    return "rested"


@workflow
async def trivial(n: int = 0) -> int:
    await last(n)
    return n


@step
async def who() -> str:
    """Hang in the worker named W1 until it is let go, answer at once elsewhere."""
    note()
    while worker() == "W1" and not flag("go").exists():
        await asyncio.sleep(0.02)
    return worker()


@workflow
async def named() -> list[str]:
    name = await who()
    await second()
    return [name, "done"]


@step(retry=Retry(attempts=3, initial="10ms"))
async def named_thrice() -> str:
    note()
    while worker() == "W1" and not flag("go").exists():
        await asyncio.sleep(0.02)
    return worker()


@workflow
async def tried() -> str:
    return await named_thrice()


@workflow
async def everything() -> str:
    """Use every kind of record, so that each can be refused."""
    await first()
    await asyncio.sleep(0.1)
    await perdure.checkpoint("half")
    await perdure.publish("progress", 1)
    await second()
    return worker_blind()


def worker_blind() -> str:
    return "ended"


@step
async def suicide(times: int) -> str:
    """Kill this process as long as it has not happened ``times`` times."""
    note()
    if ran("suicide") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@workflow
async def deadly(times: int) -> str:
    return await suicide(times)


@step
async def wait_async(seconds: float) -> str:
    note()
    await asyncio.sleep(seconds)
    note(phase="end")
    return "a"


@step
def wait_sync(seconds: float) -> str:
    note()
    time.sleep(seconds)
    note(phase="end")
    return "s"


@workflow
async def long_async(seconds: float) -> str:
    return await wait_async(seconds)


@workflow
async def long_sync(seconds: float) -> str:
    return await wait_sync.aio(seconds)


@step
async def stubborn(seconds: float) -> str:
    """Swallow every cancellation in W1; answer at once elsewhere."""
    note()
    end = time.monotonic() + seconds
    while worker() == "W1" and time.monotonic() < end:
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            note(phase="swallowed")
    return worker()


@step
def stubborn_thread(seconds: float) -> str:
    """Sleep in W1 where nothing can stop it; answer at once elsewhere."""
    note()
    if worker() == "W1":
        time.sleep(seconds)
    return worker()


@workflow
async def stubborn_async() -> str:
    return await stubborn(60.0)


@workflow
async def stubborn_sync() -> str:
    return await stubborn_thread.aio(60.0)


@step
async def piece(label: str) -> str:
    note(label)
    await asyncio.sleep(random.random() * 0.05)
    return label


async def chain(label: str) -> list[str]:
    return [await piece(f"{label}{n}") for n in range(3)]


@workflow
async def fan() -> list[Any]:
    """Gather three steps, and two chains of three."""
    return list(await asyncio.gather(piece("a"), piece("b"), piece("c"), chain("x"), chain("y")))


@workflow
async def tools() -> dict[str, Any]:
    """Use what iterates over sets, and queues and locks, around steps."""
    found: dict[str, Any] = {}
    tasks = [asyncio.create_task(chain(label)) for label in "pqr"]
    done, _ = await asyncio.wait(tasks)
    found["wait"] = [await piece(f"w{task.result()[0]}") for task in done]
    found["completed"] = sorted([await each for each in asyncio.as_completed([piece("k"), piece("l"), piece("m")])])
    async with asyncio.TaskGroup() as group:
        grouped = [group.create_task(chain(label)) for label in "gh"]
    found["group"] = [task.result() for task in grouped]
    queue: asyncio.Queue[str] = asyncio.Queue()
    lock = asyncio.Lock()

    async def produce(label: str) -> None:
        async with lock:
            await queue.put(await piece(label))

    await asyncio.gather(*(produce(f"n{n}") for n in range(4)))
    found["queue"] = [queue.get_nowait() for _ in range(4)]
    await asyncio.sleep(0.2)
    found["after"] = await piece("z")
    return found


@step
async def loop_step(sync: bool = False) -> None:
    note()
    await asyncio.sleep(random.uniform(0.02, 0.06))


@step
def loop_step_sync() -> None:
    note("loop_step")
    time.sleep(random.uniform(0.02, 0.06))


@workflow
async def endless(threads: bool) -> None:
    while True:
        await (loop_step_sync.aio() if threads else loop_step())


@step
async def release() -> None:
    note()


@workflow
async def tidy() -> str:
    try:
        for _ in range(10):
            await loop_step()
    finally:
        await release()
    return "through"


@step
async def hold_interpreter(seconds: float) -> str:
    """Make one call that keeps the interpreter lock, in W1 only."""
    note()
    if worker() == "W1":
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return worker()


@workflow
async def greedy(seconds: float) -> list[str]:
    return [await hold_interpreter(seconds), await second()]


@step(timeout="0.4s", retry=Retry(attempts=3, initial="10ms", jitter=False))
async def hanging() -> int:
    note()
    attempt = perdure.step_info().attempt
    if attempt == 1:
        raise ValueError("the first attempt fails")
    if attempt == 2:
        await asyncio.Event().wait()
    return attempt


@workflow
async def hangs_once() -> int:
    return await hanging()


@step
async def fails() -> None:
    note()
    raise ValueError("after the wait")


@step(retry=Retry(attempts=2, initial="10ms"))
async def fails_once() -> int:
    note()
    if perdure.step_info().attempt == 1:
        raise ValueError("after the wait")
    return perdure.step_info().attempt


@workflow
async def wait_then_fail() -> None:
    await asyncio.sleep(0.3)
    await fails()


@workflow
async def wait_then_try_twice() -> int:
    await asyncio.sleep(0.3)
    return await fails_once()


@step(retry=Retry(attempts=3, initial="60s"))
async def fails_long() -> None:
    note()
    raise ValueError("wait a minute")


@workflow
async def retries_late() -> None:
    await fails_long()


@workflow
async def all_of(due: float) -> str:
    """Wait for three timers that are due in the same microsecond."""
    await asyncio.gather(*(asyncio.sleep(due) for _ in range(3)))
    await last("all")
    return "all"


@workflow
async def first_of(due: float) -> str:
    waits = [asyncio.create_task(asyncio.sleep(due)) for _ in range(3)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await last("first")
    return "first"


@step
async def blocking(seconds: float) -> str:
    """Block the event loop, which an async step must not do."""
    note()
    time.sleep(seconds)
    return worker()


@workflow
async def blocks_loop(seconds: float) -> str:
    return await blocking(seconds)


@step
def asks_back(url: str, n: int) -> str:
    """Start another run from a step on a thread, wait for it, and read its status."""
    note()
    with perdure.SyncEngine(url, worker=False) as engine:
        run = engine.start("trivial", n=n, id=f"inner-{n}")
        run.result(timeout=30)
        return str(run.status())


@workflow
async def outer(url: str, n: int) -> str:
    return await asks_back.aio(url, n)


@step(timeout="0.3s", retry=Retry(attempts=2, initial="1ms"))
def slow_thread(seconds: float) -> int:
    note()
    attempt = perdure.step_info().attempt
    if attempt == 1:
        time.sleep(seconds)
    note(phase="end")
    return attempt


@workflow
async def times_out(seconds: float) -> int:
    return await slow_thread.aio(seconds)


@workflow
async def stuck() -> None:
    """Wait for something that never comes, which parks the run."""
    await asyncio.get_running_loop().create_future()
