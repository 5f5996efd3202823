"""The pool for sync steps: it grows to its limit and no further, and every call is answered on the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from perdure.runtime.threads import ThreadPool


class Answers:
    def __init__(self) -> None:
        self.got: list[tuple[Any, BaseException | None]] = []
        self.places: set[threading.Thread] = set()

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.got.append((result, error))
        self.places.add(threading.current_thread())

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(40):
            while len(self.got) < count:
                await asyncio.sleep(0.001)


async def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    pool, answers = ThreadPool("test", 2, asyncio.get_running_loop()), Answers()
    both, go, most = threading.Barrier(3), threading.Event(), [0, 0]
    lock = threading.Lock()

    def call() -> int:
        with lock:
            most[0] += 1
            most[1] = max(most)
        go.wait(5)
        with lock:
            most[0] -= 1
        return most[1]

    pool.submit(lambda: both.wait(5), answers)
    pool.submit(lambda: both.wait(5), answers)
    await asyncio.to_thread(both.wait, 5)
    await answers.wait(2)
    for _ in range(10):
        pool.submit(call, answers)
    assert pool.busy == 10
    go.set()
    await answers.wait(12)
    assert most[1] <= 2
    assert pool.busy == 0
    assert answers.places == {threading.main_thread()}
    pool.close(5)


async def test_whatever_a_call_raises_is_its_answer() -> None:
    pool, answers = ThreadPool("test", 1, asyncio.get_running_loop()), Answers()

    def fail(error: BaseException) -> None:
        raise error

    raised = [ValueError("a"), SystemExit(3), KeyboardInterrupt()]
    for error in raised:
        pool.submit(lambda error=error: fail(error), answers)  # type: ignore[misc]
    pool.submit(lambda: 1, answers)
    await answers.wait(4)
    assert answers.got == [*((None, error) for error in raised), (1, None)]
    pool.close(5)


async def test_closing_does_not_wait_for_a_call_that_does_not_end() -> None:
    pool, answers, begun, go = ThreadPool("test", 1, asyncio.get_running_loop()), Answers(), *(
        threading.Event() for _ in range(2)
    )  # fmt: skip

    def stuck() -> None:
        begun.set()
        go.wait(10)

    pool.submit(stuck, answers)
    assert await asyncio.to_thread(begun.wait, 5)
    pool.close(60)
    assert answers.got == []
    go.set()
    await answers.wait(1)


def test_a_call_that_ends_after_its_loop_is_nobodys() -> None:
    loop, go, ended = asyncio.new_event_loop(), threading.Event(), threading.Event()
    pool, answers = ThreadPool("test", 1, loop), Answers()

    def late() -> None:
        go.wait(10)
        ended.set()

    pool.submit(late, answers)
    loop.close()
    go.set()
    assert ended.wait(5)
    pool.close(5)
    assert answers.got == []
