"""The writer beside a store that sends: the loop goes on, and what goes wrong is for the thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from perdure.model.write import COMMITTED
from perdure.store import writer as module
from tests.store.test_writer import Plan, Told, opened, send


class Flight:
    """A batch on its way until the test says that it has arrived."""

    landed: Callable[[], None]

    def __init__(self, batch: Sequence[Any], error: Exception | None = None, patience_s: float = 60.0) -> None:
        self.batch = batch
        self.failure = error
        self.error: Exception | None = None
        self.is_over = False
        self.abandoned = False
        self.unsent = False
        self.deadline = time.monotonic() + patience_s
        self.here, self.there = socket.socketpair()
        self.file = self.here.fileno()

    def end(self, error: Exception | None) -> None:
        self.error, self.is_over = error, True
        self.here.close()
        self.there.close()

    @property
    def outcomes(self) -> list[Any]:
        return [COMMITTED] * len(self.batch)

    def arrive(self) -> None:
        self.there.send(b"!")

    def fileno(self) -> int:
        return self.file

    def advance(self) -> bool:
        self.end(self.failure)
        return True

    def expire(self) -> None:
        self.end(TimeoutError("silent"))

    def abandon(self) -> None:
        self.abandoned = True
        self.end(None)


class Sent(Plan):
    """A store that sends what it can."""

    def __init__(self, *failures: Exception | None, patience_s: float = 60.0) -> None:
        super().__init__(inline=False)
        self.capabilities.sends = True
        self.failures = list(failures)
        self.patience_s = patience_s
        self.flights: list[Flight] = []
        self.landed: list[tuple[Sequence[Any], Exception | None]] = []
        self.is_away = False

    def send(self, batch: Sequence[Any]) -> Flight | None:
        if self.is_away:
            return None
        flight = Flight(batch, self.failures.pop(0) if self.failures else None, self.patience_s)
        self.flights.append(flight)
        return flight

    def land(self, batch: Sequence[Any], flight: Flight) -> Any:
        self.places.append(threading.current_thread())
        self.landed.append((batch, flight.error))
        return [COMMITTED] * len(batch)


async def sent(store: Sent, number: int) -> Flight:
    """Wait for a flight to be on its way."""
    while len(store.flights) < number:
        await asyncio.sleep(0)
    return store.flights[number - 1]


async def test_the_loop_goes_on_while_a_batch_is_on_its_way_and_the_order_is_kept() -> None:
    store, told = Sent(), Told()
    writer = opened(store)
    send(writer, told, "a", "b")
    first = await sent(store, 1)
    send(writer, told, "c")
    for _ in range(10):
        await asyncio.sleep(0)
    assert told.outcomes == []
    assert len(store.flights) == 1, "one after the other"
    first.arrive()
    second = await sent(store, 2)
    second.arrive()
    await writer.close(5)
    assert [list(flight.batch) for flight in store.flights] == [["a", "b"], ["c"]]
    assert told.outcomes == [(name, COMMITTED) for name in "abc"]
    assert store.places == [], "no thread was needed"


async def test_a_full_batch_is_sent_at_once_whatever_the_loop_has_to_do_before_its_next_turn() -> None:
    store, told = Sent(), Told()
    writer = opened(store, max_batch=3)
    send(writer, told, "a", "b")
    assert store.flights == []
    send(writer, told, "c", "d", "e", "f", "g")
    assert [list(flight.batch) for flight in store.flights] == [["a", "b", "c"]], "and one after the other"
    assert told.outcomes == []
    for number in (1, 2, 3):
        (await sent(store, number)).arrive()
    await writer.close(5)
    assert [list(flight.batch) for flight in store.flights] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert told.outcomes == [(name, COMMITTED) for name in "abcdefg"]
    assert store.places == [], "no thread was needed"


@pytest.mark.parametrize("inline", [True, False])
async def test_a_store_that_cannot_send_has_nothing_to_do_before_the_next_turn(inline: bool) -> None:
    store, told = Plan(inline=inline), Told()
    writer = opened(store, max_batch=2)
    send(writer, told, "a", "b", "c")
    assert store.places == []
    await writer.close(5)
    assert told.outcomes == [(name, COMMITTED) for name in "abc"]


async def test_a_flight_that_fails_is_landed_on_the_thread() -> None:
    refused = ValueError("refused")
    store, told = Sent(refused), Told()
    writer = opened(store)
    send(writer, told, "a")
    (await sent(store, 1)).arrive()
    await writer.close(5)
    assert store.landed == [(["a"], refused)]
    assert threading.main_thread() not in store.places
    assert told.outcomes == [("a", COMMITTED)]


async def test_a_flight_that_takes_too_long_expires() -> None:
    store, told = Sent(patience_s=0.01), Told()
    writer = opened(store)
    send(writer, told, "a")
    await writer.close(5)
    assert [type(error) for _, error in store.landed] == [TimeoutError]
    assert told.outcomes == [("a", COMMITTED)]


async def test_what_cannot_be_sent_now_is_committed_by_the_thread() -> None:
    store, told = Sent(), Told()
    store.is_away = True
    writer = opened(store)
    send(writer, told, "a")
    await writer.close(5)
    assert store.written == ["a"]
    assert threading.main_thread() not in store.places


async def test_a_writer_that_is_aborted_gives_its_flight_up() -> None:
    store = Sent()
    writer = opened(store)
    send(writer, Told(), "a")
    flight = await sent(store, 1)
    writer.abort()
    assert flight.abandoned
    assert not asyncio.get_running_loop().remove_reader(flight.file)


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_large_batch_is_taken_in_by_halves(breaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HALVED", 4)
    store, seen = Sent(), list[int]()
    told = Told(lambda write: seen.append(len(store.flights)))
    writer = opened(store)
    send(writer, told, "a", "b", "c", "d")
    later = Told()
    turns = iter([["e"], ["f"], []])

    def turn() -> None:
        send(writer, later, *next(turns, []))
        if breaks and not later.outcomes and seen == [1, 1]:
            raise KeyboardInterrupt

    writer.told = turn
    await sent(store, 1)
    watch = writer._watch
    assert watch is not None
    with pytest.raises(KeyboardInterrupt) if breaks else nullcontext():
        watch._ready()
    assert seen == ([1, 1, 1, 1] if breaks else [1, 1, 2, 2]), "the store works while the second half is taken in"
    assert [name for name, _ in told.outcomes] == ["a", "b", "c", "d"]
    for number in (2,) if breaks else (2, 3):
        (await sent(store, number)).arrive()
    await writer.close(5)
    assert [name for name, _ in later.outcomes] == ["e", "f"]
