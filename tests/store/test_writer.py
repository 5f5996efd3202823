"""The writer: what is submitted is written, in order, whatever the store does; who waits is told how it ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.errors import StoreCorrupt, StoreUnavailable
from perdure.model.write import COMMITTED, Blocked, Failed
from perdure.store import writer as module
from perdure.store.writer import Writer


class Plan:
    """A store that answers commit after commit as it is told, then well."""

    def __init__(self, *answers: Any, inline: bool = True) -> None:
        self.capabilities = SimpleNamespace(inline=inline, sends=False)
        self.answers = list(answers)
        self.written: list[str] = []
        self.batches: list[int] = []
        self.places: list[threading.Thread] = []
        self.asked: list[bool] = []

    def commit(self, batch: Sequence[Any], *, block: bool = True) -> Any:
        self.places.append(threading.current_thread())
        self.asked.append(block)
        answer = self.answers.pop(0) if self.answers else "well"
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer()
        elif answer != "well":
            return None
        self.written += batch
        self.batches.append(len(batch))
        return [COMMITTED] * len(batch)


class Partial(Plan):
    """A store in which somebody else is in the way of one write for a while."""

    def __init__(self, blocked: str, times: int) -> None:
        super().__init__(inline=False)
        self.blocked, self.times = blocked, times

    def commit(self, batch: Sequence[Any], *, block: bool = True) -> Any:
        self.batches.append(len(batch))
        outcomes = [Blocked(write) if write == self.blocked and self.times > 0 else COMMITTED for write in batch]
        self.times -= self.blocked in batch
        self.written += [write for write, outcome in zip(batch, outcomes, strict=True) if outcome == COMMITTED]
        return outcomes


class Told:
    def __init__(self, during: Callable[[Any], None] | None = None) -> None:
        self.outcomes: list[tuple[str, Any]] = []
        self.during = during

    def settled(self, write: Any, outcome: Any) -> None:
        self.outcomes.append((write, outcome))
        if self.during is not None:
            self.during(write)


def opened(store: Plan, **options: int) -> Writer:
    anything: Any = store
    writer = Writer(anything, **options)
    writer.start(asyncio.get_running_loop())
    return writer


def send(writer: Writer, told: Told, *names: str) -> None:
    for name in names:
        write: Any = name
        writer.submit(write, told)


async def test_what_is_submitted_together_is_one_commit_in_order() -> None:
    store, told = Plan(), Told()
    writer = opened(store, max_batch=3)
    send(writer, told, "a", "b", "c", "d")
    await writer.close(5)
    assert store.written == ["a", "b", "c", "d"]
    assert store.batches == [3, 1]
    assert told.outcomes == [(name, COMMITTED) for name in "abcd"]
    assert (writer.batches, writer.writes) == (2, 4)


async def test_what_is_blocked_is_tried_again_by_itself_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store, told = Partial("b", 11), Told()
    writer = opened(store)
    send(writer, told, "a", "b", "c")
    while len(told.outcomes) < 2:
        await asyncio.sleep(0.001)
    assert store.written == ["a", "c"]
    send(writer, told, "d")
    while "b" not in store.written and "d" not in store.written:
        await asyncio.sleep(0.001)
    assert "b" not in store.written
    store.times = 1  # enough is seen
    await writer.close(5)
    assert told.outcomes[-1] == ("b", COMMITTED)
    assert sorted(store.written) == ["a", "b", "c", "d"]
    assert store.batches[0] == 3
    assert set(store.batches[1:]) == {1}


async def test_while_the_store_is_unavailable_nothing_is_dropped_and_the_order_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = StoreUnavailable("gone")
    store, told = Plan(gone, gone, gone), Told()
    writer = opened(store, max_batch=2)
    send(writer, told, "a", "b", "c")
    while writer.batches == 0:
        send(writer, told, "late")
        await asyncio.sleep(0.01)
    await writer.close(5)
    assert store.written[:3] == ["a", "b", "c"]
    assert set(store.written[3:]) == {"late"}
    assert all(outcome is COMMITTED for _, outcome in told.outcomes)
    assert len(told.outcomes) == len(store.written)
    assert "trying again (attempt 1)" in caplog.text
    assert "attempt 2" not in caplog.text, "an outage is told of once, not every 20 ms"
    assert "back after 3 failed attempts" in caplog.text


async def test_a_refused_batch_is_told_to_each_of_its_writers_and_ends_nothing() -> None:
    damaged = StoreCorrupt("damaged")
    store, told = Plan(damaged), Told()
    writer = opened(store)
    send(writer, told, "a", "b")
    await writer.close(5)
    assert told.outcomes == [("a", Failed(damaged)), ("b", Failed(damaged))]
    later = opened(Plan())
    send(later, told, "c")
    await later.close(5)
    assert told.outcomes[-1] == ("c", COMMITTED)


@pytest.mark.parametrize("failure", [ZeroDivisionError("a bug"), MemoryError(), KeyboardInterrupt()])
async def test_a_store_that_breaks_is_told_to_whoever_watches(failure: BaseException) -> None:
    told, seen = Told(), list[BaseException]()
    writer = opened(Plan(failure))
    writer.on_crash = seen.append
    send(writer, told, "a")
    await asyncio.wait_for(writer.written(), 5)
    assert seen == [failure]
    assert writer.crash is failure
    send(writer, told, "b")
    await asyncio.sleep(0)
    await writer.close(5)
    assert told.outcomes == [], "nobody is told that something is written which is not"


async def test_without_a_watcher_a_broken_store_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    writer = opened(Plan(ZeroDivisionError("a bug")))
    send(writer, Told(), "a")
    await writer.close(5)
    assert "nothing is written any more" in caplog.text
    assert "a bug" in caplog.text


async def test_a_store_without_an_answer_counts_as_broken() -> None:
    writer = opened(Plan("busy", "busy"))
    writer.on_crash = lambda error: None
    send(writer, Told(), "a")
    await writer.close(5)
    assert "gave no answer" in str(writer.crash)


async def test_a_store_that_is_busy_is_written_to_from_the_thread() -> None:
    store, told = Plan("busy"), Told()
    writer = opened(store)
    send(writer, told, "a")
    await writer.close(5)
    assert store.written == ["a"]
    assert store.asked == [False, True]
    assert store.places[0] is threading.main_thread()
    assert store.places[1] is not threading.main_thread()


async def test_a_store_that_asks_for_it_is_never_called_on_the_loop() -> None:
    store = Plan(inline=False)
    writer = opened(store)
    send(writer, Told(), "a", "b")
    await writer.close(5)
    assert threading.main_thread() not in store.places


async def test_a_slow_disk_moves_commits_to_the_thread_and_a_quick_one_brings_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 1.0] + [float(n // 2) for n in range(2, 1000)])
    monkeypatch.setattr(module, "perf_counter", lambda: next(times))
    store, told = Plan(), Told()
    writer = opened(store)
    for n in range(60):
        send(writer, told, str(n))
        await asyncio.wait_for(writer.written(), 5)
    await writer.close(5)
    on_loop = [place is threading.main_thread() for place in store.places]
    assert on_loop[0]
    assert not on_loop[1], "one commit of a second is slow"
    assert store.written == [str(n) for n in range(60)]


async def test_whoever_starts_runs_waits_for_room() -> None:
    store, told = Plan(), Told()
    writer = opened(store, max_batch=2, high_water=4)
    send(writer, told, *"abcd")
    assert not writer.is_full
    await writer.room()
    send(writer, told, "e")
    assert writer.is_full
    assert store.written == []
    await asyncio.wait_for(writer.room(), 5)
    assert len(store.written) >= 3
    assert not writer.is_full
    await writer.close(5)
    assert store.written == list("abcde")


async def test_a_crash_lets_go_of_whoever_waits_for_room() -> None:
    writer = opened(Plan(ZeroDivisionError()), high_water=0)
    writer.on_crash = lambda error: None
    send(writer, Told(), "a", "b")
    await asyncio.wait_for(writer.room(), 5)
    assert writer.crash is not None


async def test_an_error_of_one_submitter_is_not_the_next_ones(caplog: pytest.LogCaptureFixture) -> None:
    def broken(write: str) -> None:
        if write == "a":
            raise ZeroDivisionError("mine alone")

    told = Told(broken)
    writer = opened(Plan())
    send(writer, told, "a", "b")
    await writer.close(5)
    assert [write for write, _ in told.outcomes] == ["a", "b"]
    assert "mine alone" in caplog.text


def test_an_interrupt_while_answers_are_given_passes_through_and_the_writer_goes_on() -> None:
    loop = asyncio.new_event_loop()

    def interrupted(write: str) -> None:
        if write == "a":
            raise KeyboardInterrupt

    store, told = Plan(), Told(interrupted)
    anything: Any = store
    writer = Writer(anything, max_batch=1)
    writer.start(loop)
    send(writer, told, "a", "b")
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        loop.run_until_complete(writer.close(5))
    finally:
        loop.close()
    assert store.written == ["a", "b"]


async def test_aborting_writes_nothing_more() -> None:
    store, told = Plan(), Told()
    writer = opened(store)
    send(writer, told, "a")
    writer.abort()
    await asyncio.sleep(0)
    await writer.close(5)
    assert store.written == []
    assert told.outcomes == []


@pytest.mark.parametrize("inline", [True, False])
async def test_closing_gives_up_what_a_store_that_is_away_does_not_take(inline: bool) -> None:
    store, told = Plan(*[StoreUnavailable("gone")] * 1000, inline=inline), Told()
    writer = opened(store)
    send(writer, told, "a", "b")
    began = time.monotonic()
    assert not await writer.close(0.2)
    assert 0.2 <= time.monotonic() - began < 3
    tried = len(store.answers)
    await asyncio.sleep(0.6)
    assert len(store.answers) == tried, "nothing is tried any more"
    assert told.outcomes == []


async def test_closing_gives_up_what_somebody_is_in_the_way_of() -> None:
    store, told = Partial("b", 1000), Told()
    writer = opened(store)
    send(writer, told, "a", "b", "c")
    assert not await writer.close(0.2)
    assert told.outcomes == [("a", COMMITTED), ("c", COMMITTED)]


async def test_closing_waits_for_a_store_that_comes_back_in_time() -> None:
    store, told = Plan(*[StoreUnavailable("gone")] * 3), Told()
    writer = opened(store)
    send(writer, told, "a")
    assert await writer.close(5)
    assert told.outcomes == [("a", COMMITTED)]


async def test_closing_waits_for_a_store_that_gets_on_however_slowly() -> None:
    store, told = Plan(*[partial(threading.Event().wait, 0.15)] * 4, inline=False), Told()
    writer = opened(store, max_batch=1)
    send(writer, told, "a", "b", "c", "d")
    assert await writer.close(0.3)
    assert store.written == ["a", "b", "c", "d"]


async def test_an_answer_that_comes_after_the_writer_gave_up_is_not_told() -> None:
    go = threading.Event()

    def late() -> None:
        assert go.wait(5)

    store, told = Plan(StoreUnavailable("gone"), late, inline=False), Told()
    writer = opened(store)
    send(writer, told, "a")
    while len(store.answers) > 0:
        await asyncio.sleep(0.001)
    threading.Timer(0.3, go.set).start()  # the loop waits for the thread
    assert not await writer.close(0.1)
    await asyncio.sleep(0.01)
    assert told.outcomes == []
