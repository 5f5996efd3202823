"""The thread that calls of a store are made on: it ends when it is told to, and answers whoever still waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.errors import StoreUnavailable, UsageError
from perdure.store.thread import StoreThread


async def test_a_thread_that_was_stopped_does_not_start_again() -> None:
    thread = StoreThread("late")
    loop = asyncio.get_running_loop()
    assert await thread.call(loop, lambda: 1) == 1
    thread.stop()
    with pytest.raises(StoreUnavailable, match="closed"):
        await thread.call(loop, lambda: 2)


async def test_an_answer_that_nobody_waits_for_any_more_is_passed_over() -> None:
    thread, begun, go = StoreThread("abandoned"), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> int:
        begun.set()
        go.wait(5)
        return 1

    future = thread.call(loop, slow)
    assert await asyncio.to_thread(begun.wait, 5)
    future.cancel()
    go.set()
    assert await thread.call(loop, lambda: 2) == 2
    thread.stop()


async def test_a_thread_may_stop_itself() -> None:
    thread, ended = StoreThread("own"), threading.Event()

    def last() -> None:
        thread.stop()
        ended.set()

    thread.post(last)
    assert await asyncio.to_thread(ended.wait, 5)


async def test_a_call_that_the_store_was_closed_under_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, go = StoreThread("slow"), threading.Event()
    monkeypatch.setattr("perdure.store.thread._JOIN_S", 0.01)

    def get() -> None:
        go.wait(5)
        raise UsageError("the store is not open")

    call = thread.call(asyncio.get_running_loop(), get)
    thread.stop()
    go.set()
    with pytest.raises(StoreUnavailable, match="the database is closed"):
        await call
